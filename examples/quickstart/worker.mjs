import { createServer } from "node:http";

const server = createServer(async (request, response) => {
  const body = Buffer.concat(await request.toArray());
  try {
    const job = JSON.parse(body);
    console.log("job", request.headers["yardmaster-job-id"], JSON.stringify(job));
    response.end(); // status 200: the job is done
  } catch (error) {
    response.writeHead(400).end(error.message); // a dead letter
  }
});
server.listen(process.env.PORT ?? 8080, "127.0.0.1");
process.on("SIGTERM", () => server.close()); // running jobs finish
