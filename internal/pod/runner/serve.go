package runner

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

const (
	// maxMessageBytes bounds a message to an interactive session, as the API bounds a prompt.
	maxMessageBytes   = 64 << 10
	headerTimeout     = 10 * time.Second
	messagePath       = "/messages"
	eventsContentType = "application/x-ndjson"
)

// server serves an interactive session: each message is a turn of the agent in the same conversation.
type server struct {
	session *session
	ctx     context.Context //nolint:containedctx // that of the session, which outlives each request
	// busy is held while a turn runs: only one process of the agent may run.
	busy sync.Mutex
}

// serve executes the prompt, if there is one, and then serves messages until ctx ends.
func (s *session) serve(ctx context.Context) (int, error) {
	if s.inputs.prompt != "" || s.inputs.file.Agent.Workflow != nil {
		prompt, err := s.firstPrompt()
		if err != nil {
			return exitInvalid, err
		}
		if code, err := s.runAgent(ctx, prompt); err != nil || code != exitSuccess {
			return code, err
		}
	}
	if s.inputs.file.StopOnRunFinished {
		s.lease.finishRun(ctx)
	}
	// The session is ready when the port accepts connections.
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", ":"+s.inputs.port)
	if err != nil {
		return exitFailure, err
	}
	defer listener.Close()
	v := &server{session: s, ctx: ctx}
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+messagePath, v.handleMessage)
	web := &http.Server{Handler: mux, ReadHeaderTimeout: headerTimeout, ReadTimeout: headerTimeout, MaxHeaderBytes: 8 << 10}
	ended := make(chan error, 1)
	go func() { ended <- web.Serve(listener) }()
	select {
	case err := <-ended:
		return exitFailure, err
	case <-ctx.Done():
	}
	shutdown, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.options.gracePeriod+outputDelay)
	defer cancel()
	err = web.Shutdown(shutdown) // waits for the turn, which ctx ends
	return exitTerminated, errors.Join(err, web.Close())
}

// handleMessage runs a turn, and answers with its events.
func (v *server) handleMessage(w http.ResponseWriter, r *http.Request) {
	message, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxMessageBytes))
	switch {
	case err != nil:
		http.Error(w, "the message is not complete, or longer than 64 KiB", http.StatusRequestEntityTooLarge)
		return
	case strings.TrimSpace(string(message)) == "":
		http.Error(w, "the message is empty", http.StatusBadRequest)
		return
	case !v.busy.TryLock():
		http.Error(w, "the agent works on another message", http.StatusConflict)
		return
	}
	defer v.busy.Unlock()
	w.Header().Set("Content-Type", eventsContentType)
	w.WriteHeader(http.StatusOK)
	s := v.session
	s.events.setCopy(flushingWriter{w})
	defer s.events.setCopy(nil)
	// The turn continues if the client disconnects: its work is in the workspace.
	if _, err := s.runAgent(v.ctx, string(message)); err != nil { //nolint:contextcheck // that of the session
		s.events.report("%s", err)
	}
}

// flushingWriter sends each event at once.
type flushingWriter struct{ http.ResponseWriter }

// Write implements io.Writer.
func (w flushingWriter) Write(p []byte) (int, error) {
	rc := http.NewResponseController(w.ResponseWriter)
	_ = rc.SetWriteDeadline(time.Now().Add(headerTimeout)) // a client that does not read must not stop the agent
	n, err := w.ResponseWriter.Write(p)
	_ = rc.Flush()
	return n, err
}
