package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"strings"
)

// agent does the work of a session, where others would ask a model.
type agent struct {
	session *session
	lease   *lease
	memory  *memory
	out     io.Writer

	// What the result tells of.
	begun        int // the line of the prompt that this attempt began with
	lines, words int
	cost         *float64
	tried        []string // to reach, and what came of it
	raw          string
}

func newAgent(s *session, lease *lease, out io.Writer) (*agent, error) {
	memory, err := openMemory(s.workspace)
	if err != nil {
		return nil, fmt.Errorf("opening the workspace: %w", err)
	}
	return &agent{session: s, lease: lease, memory: memory, out: out}, nil
}

func (a *agent) close() { a.memory.close() }

// work does what the prompt says; if the session is interactive, then what people say, for
// as long as it may run.
func (a *agent) work(ctx context.Context) error {
	if model := a.session.LLMSettings.Model; model != "" {
		log.Print("Would ask the model ", model)
	}
	for _, repo := range a.session.Repos {
		log.Printf("Would clone %s at %s into %s", repo.URL, repo.Branch, repo.Directory)
	}
	if err := a.followPrompt(ctx); err != nil {
		return err
	}
	if a.session.port == "" {
		return nil
	}
	return a.serve(ctx)
}

// followPrompt goes through the prompt from where the last attempt was ended. A workspace
// that does not outlive its Pod remembers nothing, and so all is done anew.
func (a *agent) followPrompt(ctx context.Context) error {
	done, err := a.memory.done(a.session.name)
	if err != nil {
		return fmt.Errorf("reading how far an earlier attempt came: %w", err)
	}
	lines := strings.Split(a.session.prompt, "\n")
	a.begun = min(done, len(lines))
	if a.begun > 0 {
		log.Printf("Going on behind line %d of the prompt", a.begun)
	}
	for i := a.begun; i < len(lines); i++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := a.carryOut(ctx, lines[i]); err != nil {
			return err
		}
		if err := a.memory.note(a.session.name, i+1); err != nil {
			return fmt.Errorf("noting how far it came: %w", err)
		}
	}
	return a.memory.forget() // the next run does it all again
}

// result is what is left for the operator.
func (a *agent) result() string {
	if a.raw != "" {
		return a.raw
	}
	summary := fmt.Sprintf("Echoed %d lines", a.lines)
	if a.begun > 0 {
		summary += fmt.Sprintf(", going on behind line %d", a.begun)
	}
	summary = strings.Join(append([]string{summary}, a.tried...), ", ")
	id := a.session.sdkSessionID
	if id == "" {
		id = a.session.job
	}
	return encode(&result{
		Summary: summary, CostUSD: a.cost, SDKSessionID: id,
		Usage: map[string]int{"lines": a.lines, "words": a.words},
	})
}
