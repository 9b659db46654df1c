// Sends a job to a queue on NATS JetStream, with the standard library of Node.js only.
//
//	node enqueue.mjs nats://localhost:4222 orders '{"id": "7"}' Nats-Msg-Id=order-7 Yardmaster-Kind=charge
//	node enqueue.mjs nats://localhost:4222 orders '{"id": "8"}' Yardmaster-Job-Id=order-8 --at 2030-01-01T00:00:00Z
//
// In a program that sends many jobs, use the package @nats-io/jetstream, which reconnects and supports TLS.
import { randomBytes } from "node:crypto";
import { createConnection } from "node:net";
import { createInterface } from "node:readline";

const timeoutMilliseconds = 10_000;
// The errors "wrong last sequence": a delayed job with this ID is not due yet.
const notDueYet = [10071, 10164];

/** Resolves to the answer of the server, or rejects if it did not store the job. */
export function enqueue(url, queue, payload, headers, { priority = "default", at } = {}) {
  let subject = `yardmaster.${queue}.ready.${priority}`;
  if (at) {
    const id = headers["Yardmaster-Job-Id"];
    const due = `yardmaster.${queue}.due.${priority}.${id}`;
    subject = `yardmaster.${queue}.delayed.${id}`;
    headers = { ...headers, "Nats-Schedule": `@at ${at}`, "Nats-Schedule-Target": due, "Nats-Expected-Last-Subject-Sequence": "0" };
  }
  const { hostname, port, username, password } = new URL(url);
  const inbox = `_INBOX.${randomBytes(12).toString("hex")}`;
  const login = username ? { user: decodeURIComponent(username), pass: decodeURIComponent(password) } : {};
  const options = { verbose: false, pedantic: false, headers: true, no_responders: true, lang: "javascript", version: "0", ...login };
  const head = "NATS/1.0\r\n" + Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`).join("") + "\r\n";
  const body = Buffer.from(payload);
  const headBytes = Buffer.byteLength(head);
  return new Promise((resolve, reject) => {
    const socket = createConnection({ host: hostname, port: Number(port || 4222), timeout: timeoutMilliseconds });
    const end = (settle, value) => { socket.destroy(); settle(value); };
    socket.on("error", reject).on("timeout", () => end(reject, new Error("the server did not answer")));
    socket.on("close", () => reject(new Error("the server closed the connection")));
    let isAnswer = false;
    createInterface({ input: socket }).on("line", (line) => {
      const [verb] = line.split(" ");
      if (isAnswer) { // the body is one line of JSON
        const answer = JSON.parse(line);
        if (notDueYet.includes(answer.error?.err_code)) return end(resolve, { stream: answer.stream, duplicate: true });
        return answer.error ? end(reject, new Error(answer.error.description)) : end(resolve, answer);
      }
      if (verb === "INFO") {
        socket.write(`CONNECT ${JSON.stringify(options)}\r\nSUB ${inbox} 1\r\n`);
        socket.write(`HPUB ${subject} ${inbox} ${headBytes} ${headBytes + body.length}\r\n${head}`);
        socket.write(Buffer.concat([body, Buffer.from("\r\n")]));
      } else if (verb === "PING") socket.write("PONG\r\n");
      else if (verb === "-ERR") end(reject, new Error(line));
      else if (verb === "HMSG") end(reject, new Error(`no queue ${queue} with the priority ${priority} accepts the job`));
      else if (verb === "MSG") isAnswer = true;
    });
  });
}

if (process.argv[1] === new URL(import.meta.url).pathname) {
  const args = process.argv.slice(2);
  const index = args.indexOf("--at");
  const at = index < 0 ? undefined : args.splice(index, 2)[1];
  const [url, queue, payload, ...pairs] = args;
  const headers = Object.fromEntries(pairs.map((pair) => pair.split(/=(.*)/s).slice(0, 2)));
  enqueue(url, queue, payload, headers, { at }).then(
    (answer) => console.log(JSON.stringify(answer)),
    (error) => { console.error(error.message); process.exitCode = 1; },
  );
}
