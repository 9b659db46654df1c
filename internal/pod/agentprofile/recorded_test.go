package agentprofile

import (
	"bytes"
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/yardmaster/yardmaster/test/require"
)

// replay returns the events and the report of a recorded stream. The streams were recorded with the command lines that
// test/agents installs, against the scripted server in test/modelserver.
func replay(t *testing.T, profile, recording string, baseline *Sums) ([]Event, Report) {
	t.Helper()
	raw, err := os.ReadFile("testdata/" + recording + ".ndjson")
	require.NoError(t, err)
	return replayOutput(t, load(t, profile), raw, baseline)
}

func replayOutput(t *testing.T, p *Profile, raw []byte, baseline *Sums) ([]Event, Report) {
	t.Helper()
	parser, tally := p.NewParser(), p.NewTally("configured", baseline != nil, func(string) *Sums { return baseline })
	var all []Event
	add := func(events []Event) {
		for i := range events {
			tally.Add(&events[i])
		}
		all = append(all, events...)
	}
	for line := range bytes.Lines(raw) {
		events, err := parser.Parse(bytes.TrimSpace(line))
		require.True(t, err == nil, "line %s: %v", line, err)
		add(events)
	}
	add(parser.End())
	return all, tally.Report()
}

// scriptedUsage are the tokens that the scripted server counted for the streams without a suffix.
var scriptedUsage = Usage{InputTokens: 117, CacheReadTokens: 270, OutputTokens: 51}

func TestReportsOfRecordedStreams(t *testing.T) {
	withCacheWrites := scriptedUsage
	withCacheWrites.CacheWriteTokens = 5
	for profile, want := range map[string]Report{
		"claude-code": {Model: "claude-sonnet-4-5", Usage: &withCacheWrites, CostUSD: new(0.00121575)},
		"codex":       {Model: "configured", Usage: &scriptedUsage},
		"gemini":      {Model: "gemini-2.5-pro", Usage: &scriptedUsage},
		"opencode":    {Model: "configured", Usage: &withCacheWrites, CostUSD: new(0.00121575)},
	} {
		t.Run(profile, func(t *testing.T) {
			want.Answer, want.Finished, want.UsageComplete, want.ToolCalls = "The file is there.", true, true, 2
			_, got := replay(t, profile, profile, nil)
			require.True(t, got.Conversation != "", "the conversation is not known")
			got.Conversation, got.Sums = "", nil
			require.Equal(t, want, got, cmpopts.EquateApprox(0, 1e-9))
		})
	}
}

func TestEventsOfRecordedStreams(t *testing.T) {
	for profile, want := range map[string]struct{ name, input, result string }{
		"claude-code": {"Bash", `{"command":"cat a.txt; exit 3","description":"Show it"}`, "Exit code 3\nhello"},
		"codex":       {"shell", `{"command":"/bin/bash -lc 'cat a.txt; exit 3'"}`, "cat: a.txt: No such file or directory\n"},
		"gemini":      {"run_shell_command", `{"command":"cat a.txt; exit 3"}`, "hello"},
		"opencode":    {"bash", `{"command":"cat a.txt; exit 3","description":"Show it"}`, "hello\n"},
	} {
		t.Run(profile, func(t *testing.T) {
			events, _ := replay(t, profile, profile, nil)
			var types []EventType
			last := map[EventType]Event{}
			for i := range events {
				last[events[i].Type] = events[i]
				if events[i].Type != EventUsage && events[i].Type != EventError {
					types = append(types, events[i].Type)
				}
			}
			wantTypes := []EventType{
				EventStarted, EventThinking, EventText, EventToolCall, EventToolResult, EventToolCall, EventToolResult, EventText, EventResult,
			}
			if profile == "gemini" { // which does not report what the model thinks
				wantTypes = slices.Delete(wantTypes, 1, 2)
			}
			require.Equal(t, wantTypes, types)
			call, result := last[EventToolCall], last[EventToolResult]
			require.True(t, call.Tool.Name == want.name && string(call.Tool.Input) == want.input, "call %+v", call.Tool)
			require.True(t, result.Tool.ID == call.Tool.ID && result.Text == want.result, "result %+v of the call %+v", result, call.Tool)
		})
	}
}

func TestResumedConversationCountsOnlyItsOwnTokens(t *testing.T) {
	for _, profile := range []string{"claude-code", "codex", "gemini", "opencode"} {
		t.Run(profile, func(t *testing.T) {
			_, first := replay(t, profile, profile, nil)
			_, second := replay(t, profile, profile+"-resumed", first.Sums)
			require.Equal(t, &Usage{InputTokens: 3, CacheReadTokens: 1, OutputTokens: 2}, second.Usage)
			require.True(t, first.Conversation == second.Conversation && second.UsageComplete,
				"conversation %q after %q, complete %v", second.Conversation, first.Conversation, second.UsageComplete)
			cost := second.CostUSD
			require.True(t, cost == nil || *cost >= 0.00003 && *cost <= 0.00004, "cost %v", cost)
		})
	}
}

func TestUsageOfAConversationWithUnknownSumsIsUnknown(t *testing.T) {
	for _, profile := range []string{"claude-code", "codex"} {
		tally := load(t, profile).NewTally("m", true, func(string) *Sums { return nil })
		tally.Add(&Event{Type: EventUsage, Total: true, Usage: &Usage{InputTokens: 7}, CostUSD: new(1.0)})
		tally.Add(&Event{Type: EventResult, Text: "done"})
		got := tally.Report()
		require.True(t, got.Usage == nil && got.CostUSD == nil && !got.UsageComplete, "%s: %+v", profile, got)
	}
}

func TestFailuresOfTheModelAreReported(t *testing.T) {
	for profile, want := range map[string]string{
		"claude-code": "Failed to authenticate. API Error: 401 scripted error 401",
		"codex":       "unexpected status 401 Unauthorized: scripted error 401, url: http://127.0.0.1:42559/v1/responses",
		"gemini":      `[API Error: {"error":{"code":400,"message":"scripted error 400","status":"UNAVAILABLE"}}]`,
		"opencode":    "APIError: scripted error 400",
	} {
		t.Run(profile, func(t *testing.T) {
			_, got := replay(t, profile, profile+"-failed", nil)
			require.True(t, got.Failed && got.Answer == want, "%+v", got)
		})
	}
}

func TestRepeatedRequestsAreReportedAndNotAFailure(t *testing.T) {
	events, got := replay(t, "codex", "codex-retries", nil)
	retries := 0
	for i := range events {
		if events[i].Type == EventRetry {
			retries++
		}
	}
	require.True(t, retries == 2 && !got.Failed && got.Finished, "%d retries, %+v", retries, got)
}

// The server counted 39 tokens of complete answers. Claude Code adds an estimate for the one that was cut off, and Codex nothing.
func TestAnswersThatAreCutOffMakeTheUsageIncomplete(t *testing.T) {
	for recording, profile := range map[string]string{"claude-code-interrupted": "claude-code", "codex-retries": "codex"} {
		_, got := replay(t, profile, recording, nil)
		require.True(t, got.Finished && !got.Failed && got.Interrupted && !got.UsageComplete, "%s: %+v", recording, got)
	}
}

// A stream that ends early, at any line, has no cost and no complete usage.
func TestInterruptedStreamsLeaveCostAndUsageUnknown(t *testing.T) {
	for _, profile := range []string{"claude-code", "codex", "gemini", "opencode"} {
		raw, err := os.ReadFile("testdata/" + profile + ".ndjson")
		require.NoError(t, err)
		lines := bytes.SplitAfter(bytes.TrimSpace(raw), []byte("\n"))
		for n := range lines {
			_, got := replayOutput(t, load(t, profile), bytes.Join(lines[:n], nil), nil)
			require.True(t, !got.Finished && !got.UsageComplete, "%s after %d lines: %+v", profile, n, got)
		}
	}
}
