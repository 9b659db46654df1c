package runner

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/yardmaster/yardmaster/internal/pod/agentprofile"
	"github.com/yardmaster/yardmaster/internal/pod/sessionarchive"
)

// result is the runner's result in docs/runner.md.
type result struct {
	Summary      string             `json:"summary,omitempty"`
	Usage        *resultUsage       `json:"usage,omitempty"`
	CostUSD      *float64           `json:"costUSD,omitempty"`
	SDKSessionID string             `json:"sdkSessionId,omitempty"` //nolint:tagliatelle // the operator's spelling
	Repositories []repositoryResult `json:"repositories,omitempty"`
	// Transcript is the location of the archived transcript; nil without an archive.
	Transcript *sessionarchive.Stored `json:"transcript,omitempty"`
}

// resultUsage are the tokens of an attempt.
type resultUsage struct {
	agentprofile.Usage

	Model     string `json:"model,omitempty"`
	ToolCalls int    `json:"toolCalls,omitempty"`
	// Complete is false if the numbers are only a lower bound.
	Complete bool `json:"complete"`
}

type repositoryResult struct {
	Name           string `json:"name"`
	Branch         string `json:"branch,omitempty"`
	Commit         string `json:"commit,omitempty"`
	Pushed         bool   `json:"pushed"`
	PullRequestURL string `json:"pullRequestURL,omitempty"`
	Error          string `json:"error,omitempty"`

	// archived is the name of a file of the archive with the commits that were not pushed; empty without one.
	archived string
}

// locate adds where the archive has the commits that were not pushed. It is the beginning of the error, which may be cut off.
func (r *repositoryResult) locate(stored *sessionarchive.Stored) {
	if location := stored.Files[r.archived]; location != "" {
		r.Error = "the commits are in the archive, " + location + ": " + r.Error
	}
}

const maxSDKSessionIDBytes = 256

// newResult returns the result of a process. It leaves out a cost that may be incomplete, which would be taken for the whole cost.
func newResult(report *agentprofile.Report, earlierCost float64) *result {
	r := &result{Summary: report.Answer}
	if len(report.Conversation) <= maxSDKSessionIDBytes {
		r.SDKSessionID = report.Conversation
	}
	if report.Usage != nil {
		r.Usage = &resultUsage{Usage: *report.Usage, Model: report.Model, ToolCalls: report.ToolCalls, Complete: report.UsageComplete}
	}
	if report.CostUSD != nil && report.Finished && !report.Interrupted {
		r.CostUSD = new(*report.CostUSD + earlierCost)
	}
	return r
}

// encode returns the result as JSON of at most this many bytes. It shortens texts until everything fits: the kubelet would cut it
// off, which would leave invalid JSON.
func (r *result) encode(maxBytes int) string {
	const escaped = 6 // JSON may need up to six bytes for one byte
	for {
		raw, err := json.Marshal(r)
		if err != nil {
			return fmt.Sprintf(`{"summary":%q}`, err.Error())
		}
		over := len(raw) - maxBytes
		if over <= 0 || !r.shorten((over+escaped-1)/escaped) {
			return string(raw)
		}
	}
}

// shorten removes at least this many bytes of the longest text, or the last repository. It reports whether it removed anything.
func (r *result) shorten(bytes int) bool {
	longest := &r.Summary
	for i := range r.Repositories {
		if text := &r.Repositories[i].Error; len(*text) > len(*longest) {
			longest = text
		}
	}
	if t := r.Transcript; t != nil && len(t.Error) > len(*longest) {
		longest = &t.Error
	}
	if *longest == "" {
		n := len(r.Repositories)
		r.Repositories = r.Repositories[:max(0, n-1)]
		return n > 0
	}
	*longest = cut(*longest, max(0, len(*longest)-bytes))
	return true
}

// writeResult writes into the existing file, which is mounted and cannot be replaced.
func writeResult(path, text string) error {
	const mode = 0o644
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		return fmt.Errorf("writing the result: %w", err)
	}
	return nil
}
