package runner

import (
	"fmt"
	"strings"
	"testing"

	sessions "github.com/yardmaster/yardmaster/internal/kinds/agenticsession"
	"github.com/yardmaster/yardmaster/internal/pod/agentprofile"
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
		if err != nil || len(text) > limit || got.SDKSessionID != "c-1" || *got.CostUSD != "0.5" {
			t.Errorf("%s: %d bytes, error %v, result %+v", title, len(text), err, got)
		}
	}
}

func TestSumsOfSeveralProcesses(t *testing.T) {
	usage := func(tokens int64) *agentprofile.Usage { return &agentprofile.Usage{InputTokens: tokens} }
	known := agentprofile.Report{Finished: true, UsageComplete: true, Usage: usage(3), CostUSD: new(0.25), ToolCalls: 1, Answer: "a"}
	unknown := agentprofile.Report{Usage: usage(4)}
	got := sumReports([]agentprofile.Report{known, known})
	if *got.CostUSD != 0.5 || got.Usage.InputTokens != 6 || !got.UsageComplete || !got.Finished || got.ToolCalls != 2 {
		t.Errorf("two known ones: %+v", got)
	}
	for title, reports := range map[string][]agentprofile.Report{
		"the first is unknown": {unknown, known}, "the second is unknown": {known, unknown},
	} {
		got := sumReports(reports)
		if *got.CostUSD != 0.25 || got.Usage.InputTokens != 7 || got.UsageComplete || newResult(&got, 0).CostUSD != nil {
			t.Errorf("%s: %+v", title, got)
		}
	}
}
