package plugin

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/yardmaster/yardmaster/client"
	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/worker"
)

// runJobs runs a worker of queue mail, which keeps the states of jobs, until the test ends.
func (g *deadLetterBroker) runJobs(handler worker.Handler) *client.Client {
	g.t.Helper()
	config := broker.DefaultQueueConfig("mail")
	config.Owner = broker.QueueOwner{UID: "1", Name: "a/mail"}
	config.Results = broker.ResultsConfig{Retention: time.Hour, MaxBytes: broker.DefaultResultsBytes}
	if _, err := g.engine.EnsureQueue(g.t.Context(), config); err != nil {
		g.t.Fatal(err)
	}
	c, err := client.New(g.t.Context(), client.Options{Broker: client.BrokerConfig{URL: g.clientURL()}})
	require.NoError(g.t, err)
	w, err := worker.New(worker.Options{
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Config: worker.Config{
			Broker: worker.BrokerConfig{URL: g.clientURL()}, AdminAddress: "0",
			Queues: []worker.QueueConfig{{Name: "mail", Results: &worker.ResultsConfig{Retention: worker.Duration(time.Hour)}}},
		},
	}, handler)
	require.NoError(g.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	g.t.Cleanup(func() {
		cancel()
		require.NoError(g.t, <-ended)
		_ = c.Close(context.Background())
	})
	return c
}

func TestJobsAreListedShownAndCanceled(t *testing.T) {
	g := newDeadLetterBroker(t, 0)
	c := g.runJobs(func(ctx context.Context, job *worker.Job) error {
		switch job.ID {
		case "bad":
			return worker.DeadLetter("no\x1b[2J")
		case "good":
			return job.SetResult("\x1b]0;title")
		}
		job.Progress(ctx, 0.5, "half\x1b[2J")
		<-ctx.Done()
		return ctx.Err()
	})
	for _, id := range []string{"bad", "good", "long"} {
		if _, err := c.Enqueue(t.Context(), "mail", nil, client.ID(id), client.Kind("letter")); err != nil {
			t.Fatal(err)
		}
	}
	run := func(args string) string {
		t.Helper()
		code, out, errOut := runPlugin(t, "queue "+args, natsQueue("mail"), natsSecret(g.clientURL()))
		require.True(t, code == exitSuccess && !strings.Contains(out, "\x1b"), "%s: exit code %d, stdout %q, stderr %q", args, code, out, errOut)
		return out
	}
	waitForOutput := func(args string, wants ...string) {
		t.Helper()
		err := poll.UntilNil(t.Context(), func() error {
			out := run(args)
			for _, want := range wants {
				if !strings.Contains(out, want) {
					return fmt.Errorf("%s: %s, want %q", args, out, want)
				}
			}
			return nil
		})
		require.NoError(t, err)
	}
	waitForOutput("jobs mail", "long", "running", "letter", "1/5", "50% half")
	if out := run("jobs mail"); strings.Contains(out, "good") || strings.Contains(out, "bad") {
		t.Errorf("jobs that ended are listed: %s", out)
	}
	waitForOutput("jobs mail --state dead,done", "bad", "good", "no\ufffd[2J")
	waitForOutput("job mail good", "State:", "done", "Result:")
	waitForOutput("job mail long -o json", `"state": "running"`, `"fraction": 0.5`)
	waitForOutput("job mail nobody", "unknown")
	waitForOutput("cancel mail good", "has ended: it is done")
	waitForOutput("cancel mail long", "cancellation requested")
	waitForOutput("job mail long", "canceled")
}

func TestDeadLettersAreShownEditedAndRequeuedByIDAndText(t *testing.T) {
	g := newDeadLetterBroker(t, 4)
	run := func(args string, wantCode int) (out, errOut string) {
		t.Helper()
		code, out, errOut := runPlugin(t, "queue dead "+args, natsQueue("mail"), natsSecret(g.clientURL()))
		require.True(t, code == wantCode, "%s: exit code %d, stdout %q, stderr %q", args, code, out, errOut)
		return out, errOut
	}
	if out, _ := run("show mail 2", exitSuccess); !strings.Contains(out, "letter 2") || strings.Contains(out, "\x1b") || !strings.Contains(out, "no such address") {
		t.Errorf("%q", out)
	}
	if _, errOut := run("show mail 9", exitError); !strings.Contains(errOut, "it has no dead letter 9") {
		t.Error(errOut)
	}
	if out, _ := run("list mail --filter nobody", exitSuccess); out != "" {
		t.Errorf("%q", out)
	}
	run("requeue mail 2", exitSuccess)
	g.expectCounts(3, 1)
	if _, errOut := run("requeue mail 2 3", exitError); !strings.Contains(errOut, "1 of the 2 dead letters do not exist") {
		t.Error(errOut)
	}
	g.expectCounts(2, 2)
	run("requeue mail --filter=elsewhere", exitSuccess)
	g.expectCounts(2, 2)

	editor := filepath.Join(t.TempDir(), "editor")
	require.NoError(t, os.WriteFile(editor, []byte("#!/bin/sh\nprintf edited > \"$1\"\n"), 0o700))
	t.Setenv("KUBE_EDITOR", "true")
	if out, _ := run("edit mail 4", exitSuccess); !strings.Contains(out, "is unchanged") {
		t.Error(out)
	}
	g.expectCounts(2, 2)
	t.Setenv("KUBE_EDITOR", editor)
	run("edit mail 4", exitSuccess)
	g.expectCounts(1, 3)
	if message := g.lastJob(); string(message.Data) != "edited" {
		t.Errorf("%q", message.Data)
	}
	run("requeue mail --filter=address", exitSuccess)
	g.expectCounts(0, 4)
}

func TestPayloadsAreEscaped(t *testing.T) {
	got := strings.Join(escapedLines([]byte("{\"a\": \"\\n\"}\r\n\ttab\x1b[2J\xff\u202e")), "|")
	if want := `  {"a": "\n"}|      tab\x1b[2J\xff\u202e`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
