// A client on the TypeScript SDK: `node sdk_client.mjs MODULES PLAN COMMAND...` does what the plan says with an agent.
//
// MODULES is the directory that has the SDK in its node_modules. The plan is a JSON file, the same as for
// sdk_client.py, where it is described. Each step is reported on stdout with what the SDK handed to this program.

import { spawn } from "node:child_process";
import { readFile, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { Readable, Writable } from "node:stream";
import { pathToFileURL } from "node:url";

const [modules, planFile, command, ...args] = process.argv.slice(2);
const plan = JSON.parse(await readFile(planFile, "utf8"));
const { resolve } = createRequire(`${modules}/package.json`);
const entry = plan.unstable ? "@agentclientprotocol/sdk/unstable" : "@agentclientprotocol/sdk";
const acp = await import(pathToFileURL(resolve(entry)).href);
const { methods } = acp;

const sessions = [];
let heard;
let answers = [];
let watch = null; // {at, act}: what to do once, as soon as the agent says text, or runs a tool

function listen() {
  heard = { user: "", thought: "", text: "", tools: [], asked: [], other: [] };
}

function hear(update) {
  const chunks = { user_message_chunk: "user", agent_thought_chunk: "thought", agent_message_chunk: "text" };
  const kind = update.sessionUpdate;
  if (kind in chunks) {
    heard[chunks[kind]] += update.content.text;
  } else if (kind === "tool_call") {
    heard.tools.push({ id: update.toolCallId, title: update.title, kind: update.kind, status: update.status });
  } else if (kind === "tool_call_update") {
    const tool = heard.tools.find((one) => one.id === update.toolCallId);
    for (const name of ["title", "kind", "status"]) {
      tool[name] = update[name] ?? tool[name];
    }
  } else {
    heard.other.push(kind);
  }
  const now = (kind === "agent_message_chunk" && "text") || (update.status === "in_progress" && "running");
  if (watch !== null && watch.at === now) {
    const { act } = watch;
    watch = null;
    act();
  }
}

function choose({ toolCall, options }) {
  heard.asked.push({ id: toolCall.toolCallId, kinds: options.map((option) => option.kind) });
  const kind = answers.shift();
  const option = options.find((one) => one.kind === kind);
  return { outcome: option ? { outcome: "selected", optionId: option.optionId } : { outcome: "cancelled" } };
}

const client = acp
  .client({ name: "tests" })
  .onNotification(methods.client.session.update, ({ params }) => hear(params.update))
  .onRequest(methods.client.session.requestPermission, ({ params }) => choose(params))
  .onRequest(methods.client.fs.readTextFile, async ({ params }) => {
    try {
      return { content: await readFile(params.path, "utf8") };
    } catch (error) {
      throw error.code === "ENOENT" ? acp.RequestError.resourceNotFound(params.path) : error;
    }
  })
  .onRequest(methods.client.fs.writeTextFile, async ({ params }) => {
    await writeFile(params.path, params.content);
    return {};
  });

const place = (step) => ({ sessionId: session(step), cwd: plan.cwd, mcpServers: [] });
const session = (step) => step.id ?? sessions[step.session ?? 0];

const steps = {
  async initialize(agent) {
    const result = await agent.request(methods.agent.initialize, {
      protocolVersion: acp.PROTOCOL_VERSION,
      clientCapabilities: plan.capabilities ?? {},
      clientInfo: { name: "tests", version: "1" },
    });
    return { agent: result.agentInfo.name, version: result.protocolVersion };
  },
  async new(agent) {
    const { sessionId, modes } = await agent.request(methods.agent.session.new, { cwd: plan.cwd, mcpServers: [] });
    sessions.push(sessionId);
    return { session: sessionId, mode: modes?.currentModeId };
  },
  async prompt(agent, step) {
    const stop = new AbortController();
    answers = [...(step.answers ?? [])];
    if (step.cancelAt) {
      const cancel = () => agent.notify(methods.agent.session.cancel, { sessionId: session(step) });
      watch = { at: step.cancelAt, act: step.cancelBy === "request" ? () => stop.abort() : cancel };
    }
    const prompt = [{ type: "text", text: step.text }];
    const { stopReason } = await agent.request(
      methods.agent.session.prompt,
      { sessionId: session(step), prompt },
      { cancellationSignal: stop.signal },
    );
    return { stop: stopReason };
  },
  // The SDK's own idea of a session: it makes one, and gathers its text by itself.
  async talk(agent, step) {
    return agent.buildSession(plan.cwd).withSession(async (active) => {
      const prompted = active.prompt(step.text);
      const text = await active.readText();
      return { stop: (await prompted).stopReason, gathered: text };
    });
  },
  async mode(agent, step) {
    await agent.request(methods.agent.session.setMode, { sessionId: session(step), modeId: step.mode });
  },
  async list(agent) {
    const result = await agent.request(methods.agent.session.list, { cwd: plan.cwd });
    return { listed: result.sessions.map(({ sessionId, title }) => ({ session: sessionId, title })) };
  },
  async load(agent, step) {
    const result = await agent.request(methods.agent.session.load, place(step));
    return { mode: result.modes?.currentModeId };
  },
  async resume(agent, step) {
    const result = await agent.request(methods.agent.session.resume, place(step));
    return { mode: result.modes?.currentModeId };
  },
  async fork(agent, step) {
    const { sessionId } = await agent.request(methods.agent.session.fork, place(step));
    sessions.push(sessionId);
    return { session: sessionId };
  },
  async close(agent, step) {
    await agent.request(methods.agent.session.close, { sessionId: session(step) });
  },
  async delete(agent, step) {
    await agent.request(methods.agent.session.delete, { sessionId: session(step) });
  },
};

async function take(agent, step) {
  listen();
  const report = { did: step.op };
  try {
    Object.assign(report, await steps[step.op](agent, step));
  } catch (error) {
    Object.assign(report, { error: error.code ?? String(error), message: error.message });
  }
  process.stdout.write(`${JSON.stringify({ ...report, heard })}\n`);
}

listen();
const child = spawn(command, args, { stdio: ["pipe", "pipe", "inherit"] });
const ended = new Promise((done) => child.once("exit", done));
await client.connectWith(acp.ndJsonStream(Writable.toWeb(child.stdin), Readable.toWeb(child.stdout)), async (agent) => {
  for (const step of plan.steps) {
    await take(agent, step);
  }
});
child.stdin.end();
await ended;
