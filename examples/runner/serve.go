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

// maxMessageBytes is how much a person can say at once, as much as a prompt can have.
const maxMessageBytes = 64 << 10

// message are lines that came from a person, and where the answer goes.
type message struct {
	text   string
	answer io.Writer
	done   chan struct{}
}

// listenAndServe takes what people say, each a POST, and answers it. One is answered after another:
// there is one agent, and one workspace. It is ready when it listens.
func (a *agent) listenAndServe(ctx context.Context) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort("", a.session.port))
	if err != nil {
		return err
	}
	log.Printf("Listening on port %s", a.session.port)
	return a.serveMessages(ctx, listener)
}

func (a *agent) serveMessages(ctx context.Context, listener net.Listener) error {
	talk := make(chan *message)
	server := &http.Server{Handler: messageHandler(ctx, talk), ReadHeaderTimeout: requestTimeout}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	defer shutDownServer(server) //nolint:contextcheck // the session's is over by then
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-failed:
			return err
		case s := <-talk:
			err := a.answerMessage(ctx, s)
			close(s.done)
			if err != nil {
				return err
			}
		}
	}
}

// answerMessage carries out what a person said. A mistake in it is answered, and ends nothing.
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

// messageHandler hands on what is said, and keeps the request until it is answered.
func messageHandler(ctx context.Context, talk chan<- *message) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /", func(w http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxMessageBytes))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		s := &message{text: string(text), answer: w, done: make(chan struct{})}
		select {
		case talk <- s:
			<-s.done
		case <-r.Context().Done():
		case <-ctx.Done():
			http.Error(w, "the session ends", http.StatusServiceUnavailable)
		}
	})
	return mux
}

// shutDownServer lets the last answer out.
func shutDownServer(server *http.Server) {
	const enough = 2 * time.Second
	ctx, cancel := context.WithTimeout(context.Background(), enough)
	defer cancel()
	if err := server.Shutdown(ctx); err != nil {
		log.Print("Shutting the server down: ", err)
	}
}
