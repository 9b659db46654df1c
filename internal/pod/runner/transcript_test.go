package runner

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/yardmaster/yardmaster/internal/pod/sessionarchive"
)

// startArchive runs the container that archives transcripts, and returns the directory of its claim.
func (s *testSession) startArchive() (claim string) {
	s.t.Helper()
	directory, claim := s.t.TempDir(), s.t.TempDir()
	s.set(map[string]string{"AGENTIC_ARCHIVE": directory})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- sessionarchive.Run(ctx, []string{"--directory", directory, "--claim", claim}, func(name string) string { return s.environment[name] }, io.Discard)
	}()
	s.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			s.t.Error(err)
		}
	})
	return claim
}

func TestTranscriptIsArchivedAsTheLogIs(t *testing.T) {
	for name, script := range map[string]string{
		"success": `echo '{"type":"text","text":"working"}'; echo '{"type":"result","text":"done"}'`,
		"failure": `echo '{"type":"text","text":"working"}'; exit 3`,
	} {
		t.Run(name, func(t *testing.T) {
			s := newTestSession(t, "Do it.")
			claim := s.startArchive()
			_, _ = s.run("events", script)
			got := s.result().Transcript
			if got == nil || got.Error != "" || got.Truncated {
				t.Fatalf("transcript %+v", got)
			}
			raw, err := os.ReadFile(filepath.Join(claim, got.Location))
			if err != nil {
				t.Fatal(err)
			}
			if string(raw) != s.out.String() || !strings.Contains(string(raw), `"text":"working"`) {
				t.Errorf("the transcript is\n%s\nand the log\n%s", raw, s.out)
			}
		})
	}
}

func TestTranscriptThatCannotBeArchivedIsReportedAndTheSessionCompletes(t *testing.T) {
	s := newTestSession(t, "Do it.")
	claim := s.startArchive()
	if err := os.RemoveAll(claim); err != nil {
		t.Fatal(err)
	}
	code, err := s.run("events", `echo '{"type":"result","text":"done"}'`)
	if got := s.result(); err != nil || code != 0 || got.Summary != "done" || got.Transcript.Error == "" {
		t.Errorf("code %d, error %v, result %+v", code, err, got)
	}
	if !strings.Contains(s.out.String(), "The transcript is not archived") {
		t.Errorf("log %s", s.out)
	}
}
