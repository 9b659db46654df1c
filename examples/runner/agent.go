package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"strings"
)

// agent does the work of a session. Other runners would call a model here.
type agent struct {
	session   *session
	lease     *leaseClient
	workspace *workspace
	output    io.Writer

	// What the result reports.
	firstLine      int // index of the line of the prompt with which this attempt started
	lines, words   int
	cost           *float64
	connectResults []string // of the connect command
	rawResult      string
}

func newAgent(s *session, lease *leaseClient, out io.Writer) (*agent, error) {
	memory, err := openWorkspace(s.workspace)
	if err != nil {
		return nil, fmt.Errorf("opening the workspace: %w", err)
	}
	return &agent{session: s, lease: lease, workspace: memory, output: out, cost: lease.cost}, nil
}

func (a *agent) closeWorkspace() { a.workspace.closeRoot() }

// runSession executes the prompt. An interactive session then serves messages until it ends.
func (a *agent) runSession(ctx context.Context) error {
	if model := a.session.Agent.Model; model != "" {
		log.Print("Would ask the model ", model)
	}
	for _, repo := range a.session.Repos {
		log.Printf("Would clone %s at %s into %s", repo.URL, repo.Branch, repo.Directory)
	}
	if err := a.executePrompt(ctx); err != nil {
		return err
	}
	if a.session.port == "" {
		return nil
	}
	return a.listenAndServe(ctx)
}

// executePrompt executes the prompt, after the last line of an earlier attempt. An ephemeral workspace
// contains no progress, so the prompt starts from the beginning.
func (a *agent) executePrompt(ctx context.Context) error {
	done, err := a.workspace.completedLines(a.session.name)
	if err != nil {
		return fmt.Errorf("reading the progress of an earlier attempt: %w", err)
	}
	lines := strings.Split(a.session.prompt, "\n")
	a.firstLine = min(done, len(lines))
	if a.firstLine > 0 {
		log.Printf("Resuming after line %d of the prompt", a.firstLine)
	}
	for i := a.firstLine; i < len(lines); i++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := a.executeLine(ctx, lines[i]); err != nil {
			return err
		}
		if err := a.workspace.saveProgress(a.session.name, i+1); err != nil {
			return fmt.Errorf("storing the progress: %w", err)
		}
	}
	return a.workspace.removeProgress() // the next run starts from the beginning
}

// encodeResult returns the result as JSON.
func (a *agent) encodeResult() string {
	if a.rawResult != "" {
		return a.rawResult
	}
	summary := fmt.Sprintf("Echoed %d lines", a.lines)
	if a.firstLine > 0 {
		summary += fmt.Sprintf(", resumed after line %d", a.firstLine)
	}
	summary = strings.Join(append([]string{summary}, a.connectResults...), ", ")
	id := a.session.sdkSessionID
	if id == "" {
		id = a.session.job
	}
	return marshalWithinLimit(&result{
		Summary: summary, CostUSD: a.cost, SDKSessionID: id,
		Usage: map[string]int{"lines": a.lines, "words": a.words},
	}, a.session.maxResultBytes)
}
