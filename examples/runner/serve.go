package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"time"
)

// maxMessageBytes is the maximum size of a message, the same as of a prompt.
const maxMessageBytes = 64 << 10

// message contains the lines of a request, and the writer for the answer.
type message struct {
	text   string
	answer io.Writer
	done   chan struct{}
}

// listenAndServe serves messages, each a POST, one at a time: the session has one agent and one
// workspace. The session is ready when the port accepts connections.
func (a *agent) listenAndServe(ctx context.Context) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort("", a.session.port))
	if err != nil {
		return err
	}
	log.Printf("Listening on port %s", a.session.port)
	return a.serveMessages(ctx, listener)
}

func (a *agent) serveMessages(ctx context.Context, listener net.Listener) error {
	messages := make(chan *message)
	server := &http.Server{Handler: messageHandler(ctx, messages), ReadHeaderTimeout: requestTimeout}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	defer shutDownServer(server) //nolint:contextcheck // the session's context has ended
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-failed:
			return err
		case s := <-messages:
			err := a.answerMessage(ctx, s)
			close(s.done)
			if err != nil {
				return err
			}
		}
	}
}

// answerMessage executes the lines of a message. An error is part of the answer, and does not end the
// session.
func (a *agent) answerMessage(ctx context.Context, s *message) error {
	out := a.output
	a.output = io.MultiWriter(out, s.answer)
	defer func() { a.output = out }()
	for line := range strings.Lines(s.text) {
		err := a.executeLine(ctx, line)
		var exit exitCodeError
		switch {
		case err == nil:
		case errors.As(err, &exit), ctx.Err() != nil:
			return err
		default:
			fmt.Fprintln(a.output, "error:", err)
		}
	}
	return nil
}

// messageHandler passes messages on, and keeps each request open until it is answered.
func messageHandler(ctx context.Context, messages chan<- *message) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /", func(w http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxMessageBytes))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		s := &message{text: string(text), answer: w, done: make(chan struct{})}
		select {
		case messages <- s:
			<-s.done
		case <-r.Context().Done():
		case <-ctx.Done():
			http.Error(w, "the session is ending", http.StatusServiceUnavailable)
		}
	})
	return mux
}

// shutDownServer waits a moment until the last answer is sent.
func shutDownServer(server *http.Server) {
	const timeout = 2 * time.Second
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	if err := server.Shutdown(ctx); err != nil {
		log.Print("Shutting the server down: ", err)
	}
}
