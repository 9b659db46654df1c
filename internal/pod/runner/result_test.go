package runner

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	sessions "github.com/yardmaster/yardmaster/internal/kinds/agenticsession"
	"github.com/yardmaster/yardmaster/internal/pod/agentprofile"
	"github.com/yardmaster/yardmaster/internal/pod/sessionarchive"
	"github.com/yardmaster/yardmaster/test/require"
)

func TestLongResultsAreShortenedUntilTheyFit(t *testing.T) {
	long := strings.Repeat("a \"quoted\" ä\x01", 1000)
	many := make([]repositoryResult, 16)
	for i := range many {
		many[i] = repositoryResult{
			Name: fmt.Sprintf("%s%02d", strings.Repeat("n", 61), i), Branch: "session/" + strings.Repeat("b", 244), Commit: strings.Repeat("c", 40), Error: long,
			PullRequestURL: "https://git.example/" + strings.Repeat("p", 200),
		}
	}
	for title, r := range map[string]*result{
		"a long summary":    {Summary: long, SDKSessionID: "c-1", CostUSD: new(0.5)},
		"many repositories": {Summary: long, Repositories: many, SDKSessionID: "c-1", CostUSD: new(0.5)},
	} {
		const limit = 2048
		text := r.encode(limit)
		got, err := sessions.ParseResult(text)
		require.True(t, err == nil && len(text) <= limit && got.SDKSessionID == "c-1" && *got.CostUSD == "0.5",
			"%s: %d bytes, error %v, result %+v", title, len(text), err, got)
	}
}

// TestInteractiveSessionAnswersMessagesWithEvents has the sum of known ones.
func TestSumsOfSeveralProcesses(t *testing.T) {
	usage := func(tokens int64) *agentprofile.Usage { return &agentprofile.Usage{InputTokens: tokens} }
	known := agentprofile.Report{Finished: true, UsageComplete: true, Usage: usage(3), CostUSD: new(0.25), ToolCalls: 1, Answer: "a"}
	unknown := agentprofile.Report{Usage: usage(4)}
	for title, reports := range map[string][]agentprofile.Report{
		"the first is unknown": {unknown, known}, "the second is unknown": {known, unknown},
	} {
		got := sumReports(reports)
		require.True(t, *got.CostUSD == 0.25 && got.Usage.InputTokens == 7 && !got.UsageComplete && newResult(&got, 0).CostUSD == nil,
			"%s: %+v", title, got)
	}
}

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
		require.NoError(s.t, <-ended)
	})
	return claim
}

func TestTranscriptIsArchivedAsTheLogIs(t *testing.T) {
	for _, end := range []string{`echo '{"type":"result","text":"done"}'`, "exit 3"} {
		t.Run(end, func(t *testing.T) {
			s := newTestSession(t, "Do it.")
			claim := s.startArchive()
			_, _ = s.run("events", `echo '{"type":"text","text":"working"}'; `+end)
			got := s.result().Transcript
			require.True(t, got != nil && got.Error == "" && !got.Truncated, "transcript %+v", got)
			raw, err := os.ReadFile(filepath.Join(claim, got.Location))
			require.NoError(t, err)
			require.Equal(t, s.out.String(), string(raw))
			require.Contains(t, string(raw), `"text":"working"`)
		})
	}
}

func TestTranscriptThatCannotBeArchivedIsReportedAndTheSessionCompletes(t *testing.T) {
	s := newTestSession(t, "Do it.")
	claim := s.startArchive()
	require.NoError(t, os.RemoveAll(claim))
	code, err := s.run("events", `echo '{"type":"result","text":"done"}'`)
	got := s.result()
	require.True(t, err == nil && code == 0 && got.Summary == "done" && got.Transcript.Error != "", "code %d, error %v, result %+v", code, err, got)
	require.True(t, strings.Contains(s.out.String(), "The transcript is not archived"), "log %s", s.out)
}
