import http.server, json, os, signal, threading

class Worker(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        try:
            job = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        except ValueError as error:
            return self.send_error(400, str(error))  # a dead letter
        print("job", self.headers["Yardmaster-Job-Id"], json.dumps(job), flush=True)
        self.send_response(200)  # the job is done
        self.end_headers()

server = http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ.get("PORT", 8080))), Worker)
server.daemon_threads = False  # running jobs finish
signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
server.serve_forever()
server.server_close()
