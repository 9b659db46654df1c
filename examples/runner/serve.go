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

// maxSaid is how much a person can say at once, as much as a prompt can have.
const maxSaid = 64 << 10

// said are lines that came from a person, and where the answer goes.
type said struct {
	text   string
	answer io.Writer
	done   chan struct{}
}

// serve takes what people say, each a POST, and answers it. One is answered after another:
// there is one agent, and one workspace. It is ready when it listens.
func (a *agent) serve(ctx context.Context) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort("", a.session.port))
	if err != nil {
		return err
	}
	log.Printf("Listening on port %s", a.session.port)
	return a.converse(ctx, listener)
}

func (a *agent) converse(ctx context.Context, listener net.Listener) error {
	talk := make(chan *said)
	server := &http.Server{Handler: conversation(ctx, talk), ReadHeaderTimeout: patience}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	defer shutDown(server) //nolint:contextcheck // the session's is over by then
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-failed:
			return err
		case s := <-talk:
			err := a.answer(ctx, s)
			close(s.done)
			if err != nil {
				return err
			}
		}
	}
}

// answer carries out what a person said. A mistake in it is answered, and ends nothing.
func (a *agent) answer(ctx context.Context, s *said) error {
	out := a.out
	a.out = io.MultiWriter(out, s.answer)
	defer func() { a.out = out }()
	for line := range strings.Lines(s.text) {
		err := a.carryOut(ctx, line)
		var exit exitError
		switch {
		case err == nil:
		case errors.As(err, &exit), ctx.Err() != nil:
			return err
		default:
			fmt.Fprintln(a.out, "error:", err)
		}
	}
	return nil
}

// conversation hands on what is said, and keeps the request until it is answered.
func conversation(ctx context.Context, talk chan<- *said) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /", func(w http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxSaid))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		s := &said{text: string(text), answer: w, done: make(chan struct{})}
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

// shutDown lets the last answer out.
func shutDown(server *http.Server) {
	const enough = 2 * time.Second
	ctx, cancel := context.WithTimeout(context.Background(), enough)
	defer cancel()
	if err := server.Shutdown(ctx); err != nil {
		log.Print("Shutting the server down: ", err)
	}
}
