package agenticsession

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

func TestParseResult(t *testing.T) {
	cost := func(n v1alpha1.Number) *v1alpha1.Number { return &n }
	tests := map[string]struct {
		message string
		want    *RunnerResult
		err     string
	}{
		"all fields": {
			message: `{"summary": "done", "usage": {"input": 7, "tier": "a"}, "costUSD": 0.25, "sdkSessionId": "x"}` + "\n",
			want: &RunnerResult{CostUSD: cost("0.25"), SessionResult: v1alpha1.SessionResult{
				Summary: "done", Usage: &apiextensionsv1.JSON{Raw: []byte(`{"input": 7, "tier": "a"}`)}, SDKSessionID: "x",
			}},
		},
		"an empty object":                  {message: `{}`, want: &RunnerResult{}},
		"an unknown field":                 {message: `{"later": 1}`, want: &RunnerResult{}},
		"null usage":                       {message: `{"usage": null}`, want: &RunnerResult{}},
		"a cost with many digits":          {message: `{"costUSD": 0.1234567}`, want: &RunnerResult{CostUSD: cost("0.123457")}},
		"a cost of zero":                   {message: `{"costUSD": 0}`, want: &RunnerResult{CostUSD: cost("0")}},
		"a whole cost":                     {message: `{"costUSD": 100}`, want: &RunnerResult{CostUSD: cost("100")}},
		"a small cost":                     {message: `{"costUSD": 1e-3}`, want: &RunnerResult{CostUSD: cost("0.001")}},
		"text":                             {message: `done`, err: "not a valid JSON object"},
		"a list":                           {message: `[]`, err: "not a valid JSON object"},
		"two objects":                      {message: `{} {}`, err: "data after its JSON object"},
		"a summary that is a list":         {message: `{"summary": []}`, err: "not a valid JSON object"},
		"a cost as text":                   {message: `{"costUSD": "a lot"}`, err: "not a valid JSON object"},
		"a negative cost":                  {message: `{"costUSD": -1}`, err: "must be from 0"},
		"an infinite cost":                 {message: `{"costUSD": 1e999999999}`, err: "must be from 0"},
		"usage that is a number":           {message: `{"usage": 3}`, err: "usage is not a JSON object"},
		"an sdkSessionId that is too long": {message: `{"sdkSessionId": "` + strings.Repeat("x", 257) + `"}`, err: "more than 256"},
		"an sdkSessionId with NUL":         {message: `{"sdkSessionId": "a\u0000b"}`, err: "NUL"},
		"an sdkSessionId that is a number": {message: `{"sdkSessionId": 7}`, err: "not a valid JSON object"},
		"a result that was cut off":        {message: `{"summary": "` + strings.Repeat("x", 4096-13), err: "cut off after 4096 bytes"},
		"one of a Pod with 4 containers":   {message: `{"summary": "` + strings.Repeat("x", 3072-13), err: "cut off after 3072 bytes"},
		"a result that is too long":        {message: `{"summary": "` + strings.Repeat("x", 4096) + `"}`, err: "maximum is 4096"},
	}
	for title, test := range tests {
		t.Run(title, func(t *testing.T) {
			got, err := ParseResult(test.message)
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) {
					t.Errorf("error %v, want: %s", err, test.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("the result differs (-want, +got):\n%s", diff)
			}
		})
	}
}

func TestMalformedResultDoesNotFailTheSession(t *testing.T) {
	s := newScenario(t).startAttempt().exitRunner(0, "done")
	s.wantPhase(v1alpha1.SessionCompleted, v1alpha1.ReasonCompleted)
	s.wantCondition(v1alpha1.ConditionRunnerReporting, metav1.ConditionFalse, v1alpha1.ReasonResultMalformed)
	s.updateSpec(requestNextRun).startAttempt().exitRunner(0, `{"summary": "done"}`)
	s.wantPhase(v1alpha1.SessionCompleted, v1alpha1.ReasonCompleted)
	s.wantCondition(v1alpha1.ConditionRunnerReporting, metav1.ConditionTrue, v1alpha1.ReasonReporting)
}

// A runner's value must not become the value of another variable, such as a key.
func TestSDKSessionIDIsPassedVerbatim(t *testing.T) {
	for _, id := range []string{"plain", "$(API_KEY)", "$$(API_KEY)", "a$b", "$", "$$", "$(", "a\nb"} {
		s := newScenario(t).startAttempt()
		raw, err := json.Marshal(map[string]string{"sdkSessionId": id})
		if err != nil {
			t.Fatal(err)
		}
		s.exitRunner(0, string(raw)).decideAndRecord()
		env := s.updateSpec(requestNextRun).startAttempt().newestJob().Spec.Template.Spec.Containers[0].Env
		for i := range env {
			if env[i].Name != "AGENTIC_SDK_SESSION_ID" {
				continue
			}
			// Kubernetes replaces $(NAME), and $$ by $.
			if value := env[i].Value; strings.Contains(strings.ReplaceAll(value, "$$", ""), "$") || strings.ReplaceAll(value, "$$", "$") != id {
				t.Errorf("the runner gets %q for %q", value, id)
			}
		}
	}
}

func TestTotalCostSumsReportedCosts(t *testing.T) {
	s := newScenario(t)
	for _, message := range []string{`{"costUSD": 0.1}`, `{}`, "", `{"costUSD": 0.2}`} {
		s.startAttempt().exitRunner(0, message).decideAndRecord()
		s.decideAndRecord() // the second observation changes nothing
		s.updateSpec(requestNextRun)
	}
	if got := *s.Session.Status.TotalCostUSD; got != "0.3" {
		t.Errorf("%s dollars, want 0.3", got)
	}
	if runs := s.Session.Status.Attempts; runs[1].CostUSD != nil || *runs[3].CostUSD != "0.2" {
		t.Errorf("%+v", runs)
	}
}

func TestFailureMessageContainsRunnerOutput(t *testing.T) {
	s := newScenario(t).startAttempt().exitRunner(2, "no such branch")
	s.decideAndRecord()
	if got := s.Session.Status.Attempts[0].Message; got != "the runner exited with code 2: no such branch" {
		t.Error(got)
	}
}

func TestResultLimitDependsOnTheNumberOfContainers(t *testing.T) {
	for sidecars, want := range map[int]string{0: "4096", 2: "4096", 3: "3072", 8: "1365"} {
		s := newScenario(t)
		for i := range sidecars {
			testbuilder.RunnerPod(&s.Runner.Spec).InitContainers = append(testbuilder.RunnerPod(&s.Runner.Spec).InitContainers, testbuilder.Sidecar("s"+strconv.Itoa(i), "s:1"))
		}
		env := s.decideAndRecord().CreateJob.Spec.Template.Spec.Containers[0].Env
		if i := slices.IndexFunc(env, func(e corev1.EnvVar) bool { return e.Name == "AGENTIC_RESULT_MAX_BYTES" }); i < 0 || env[i].Value != want {
			t.Errorf("%d sidecars: %+v, want %s", sidecars, env, want)
		}
	}
}
