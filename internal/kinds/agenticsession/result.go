package agenticsession

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
)

const (
	// maxResultBytes is the length to which the kubelet truncates a termination message.
	maxResultBytes        = 4096
	maxSDKSessionIDLength = 256
	maxLocation           = 1024
)

// RunnerResult is the result of a runner, with the cost of its attempt.
type RunnerResult struct {
	v1alpha1.SessionResult

	// CostUSD is the cost in US dollars; nil if it is not known.
	CostUSD *v1alpha1.Number
}

// ParseResult parses a runner's result, one JSON object. It ignores unknown fields, which a newer
// runner may write. It returns an error if the object is malformed or a value is out of range.
func ParseResult(message string) (*RunnerResult, error) {
	if len(message) > maxResultBytes {
		return nil, fmt.Errorf("the result has %d bytes, the maximum is %d", len(message), maxResultBytes)
	}
	var raw struct {
		Summary      string                             `json:"summary"`
		Usage        json.RawMessage                    `json:"usage"`
		CostUSD      *json.Number                       `json:"costUSD"`
		SDKSessionID string                             `json:"sdkSessionId"` //nolint:tagliatelle // the SDK's spelling
		Repositories []v1alpha1.SessionRepositoryResult `json:"repositories"`
		Transcript   *v1alpha1.ArchiveResult            `json:"transcript"`
	}
	decoder := json.NewDecoder(strings.NewReader(message))
	if err := decoder.Decode(&raw); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, fmt.Errorf("the result is cut off after %d bytes; the runner must write at most %sRESULT_MAX_BYTES: %w",
				len(message), v1alpha1.SessionEnvPrefix, err)
		}
		return nil, fmt.Errorf("the result is not a valid JSON object: %w", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("the result has data after its JSON object")
	}
	result := &RunnerResult{SessionResult: v1alpha1.SessionResult{Summary: raw.Summary, SDKSessionID: raw.SDKSessionID}}
	if utf8.RuneCountInString(result.SDKSessionID) > maxSDKSessionIDLength {
		return nil, fmt.Errorf("sdkSessionId has more than %d characters", maxSDKSessionIDLength)
	}
	if strings.ContainsRune(result.SDKSessionID, 0) { // no environment variable can contain it
		return nil, errors.New("sdkSessionId contains a NUL character")
	}
	if err := validateRepositories(raw.Repositories); err != nil {
		return nil, err
	}
	result.Repositories = raw.Repositories
	if t := raw.Transcript; t != nil && len(t.Location) > maxLocation {
		return nil, errors.New("transcript.location is too long")
	}
	result.Transcript = raw.Transcript
	if usage := bytes.TrimSpace(raw.Usage); len(usage) > 0 && !bytes.Equal(usage, []byte("null")) {
		if usage[0] != '{' {
			return nil, errors.New("usage is not a JSON object")
		}
		result.Usage = &apiextensionsv1.JSON{Raw: usage}
	}
	if raw.CostUSD != nil {
		cost, err := parseCost(raw.CostUSD.String())
		if err != nil {
			return nil, err
		}
		result.CostUSD = &cost
	}
	return result, nil
}

const maxResultRepositories = 16

// validateRepositories returns an error for values that the API server would reject.
func validateRepositories(repositories []v1alpha1.SessionRepositoryResult) error {
	const maxName, maxBranch, maxCommit, maxURL = 253, 512, 64, 2048
	if len(repositories) > maxResultRepositories {
		return fmt.Errorf("the result has %d repositories, at most %d are allowed", len(repositories), maxResultRepositories)
	}
	names := map[string]bool{}
	for i := range repositories {
		r := &repositories[i]
		switch {
		case names[r.Name]:
			return fmt.Errorf("repositories: %q occurs twice", r.Name)
		case len(r.Name) > maxName, len(r.Branch) > maxBranch, len(r.Commit) > maxCommit, len(r.PullRequestURL) > maxURL:
			return fmt.Errorf("repositories[%d]: name, branch, commit or pullRequestURL is too long", i)
		case r.PullRequestURL != "" && !strings.HasPrefix(r.PullRequestURL, "https://"):
			return fmt.Errorf("repositories[%d].pullRequestURL is not an https:// URL", i)
		}
		names[r.Name] = true
	}
	return nil
}

// arrivalOf returns whether the work in these repositories is on their servers. The result is nil if the attempt left none.
func arrivalOf(repos []v1alpha1.SessionRepo, result *v1alpha1.SessionResult) decision.State {
	var failed, unknown []string
	pushed := false
	for i := range repos {
		name := repoDirectory(&repos[i])
		j := -1
		if result != nil {
			j = slices.IndexFunc(result.Repositories, func(r v1alpha1.SessionRepositoryResult) bool { return r.Name == name })
		}
		switch {
		case j < 0:
			unknown = append(unknown, name)
		case !result.Repositories[j].Pushed && result.Repositories[j].Error != "":
			failed = append(failed, name+": "+result.Repositories[j].Error)
		default:
			pushed = pushed || result.Repositories[j].Pushed
		}
	}
	switch {
	case len(failed) > 0:
		return decision.False(v1alpha1.ReasonPushFailed, strings.Join(failed, "; "))
	case len(unknown) > 0:
		return decision.State{
			Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonPushUnknown,
			Message: "the runner did not report what became of the work in " + strings.Join(unknown, ", "),
		}
	case pushed:
		return decision.True(v1alpha1.ReasonPushed, "")
	}
	return decision.True(v1alpha1.ReasonNothingToPush, "")
}

// pushedRepos returns the repositories with autoPush, and with required only those without whose work a run is not Completed.
func pushedRepos(spec *v1alpha1.AgenticSessionSpec, required bool) []v1alpha1.SessionRepo {
	return slices.DeleteFunc(slices.Clone(spec.Repos), func(r v1alpha1.SessionRepo) bool {
		return !r.AutoPush || required && r.OnPushFailure == v1alpha1.PushFailureIgnore
	})
}

// requirePush fails a completed attempt whose work did not arrive. Without a container for git, as far as the SessionRunner did not
// change, the image pushes on its own, and need not report anything.
func requirePush(f *facts, v verdict, result *v1alpha1.SessionResult) verdict {
	repos, hasContainer := pushedRepos(f.spec, true), f.Runner != nil && f.Runner.Spec.Git != nil
	state := arrivalOf(repos, result)
	if v.outcome != v1alpha1.RunCompleted || len(repos) == 0 || state.Status == metav1.ConditionTrue || state.Status == metav1.ConditionUnknown && !hasContainer {
		return v
	}
	v.outcome, v.lastMessage, v.Reason, v.Message = v1alpha1.RunFailed, "", v1alpha1.ReasonPushFailed, "the agent completed its work, and not all of it was pushed: "+state.Message
	return v
}

// isWorkMissing reports whether work of the last attempt may be only in the workspace.
func isWorkMissing(status *v1alpha1.AgenticSessionStatus) bool {
	c := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionPushed)
	return c != nil && (c.Reason == v1alpha1.ReasonPushFailed || c.Reason == v1alpha1.ReasonPushUnknown)
}
