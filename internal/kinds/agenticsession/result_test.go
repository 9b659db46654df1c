package agenticsession

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

func TestParseResult(t *testing.T) {
	cost := func(n v1alpha1.Number) *RunnerResult { return &RunnerResult{CostUSD: &n} }
	n, b, c, u := strings.Repeat("n", 253), strings.Repeat("b", 512), strings.Repeat("c", 64), "https://"+strings.Repeat("u", 2048-8) // the maxima
	for message, want := range map[string]*RunnerResult{
		`{"summary": "done", "usage": {"input": 7, "tier": "a"}, "costUSD": 0.25, "sdkSessionId": "x"}` + "\n": {
			CostUSD:       new(v1alpha1.Number("0.25")),
			SessionResult: v1alpha1.SessionResult{Summary: "done", Usage: &apiextensionsv1.JSON{Raw: []byte(`{"input": 7, "tier": "a"}`)}, SDKSessionID: "x"},
		},
		`{}`:                     {},
		`{"later": 1}`:           {},
		`{"usage": null}`:        {},
		`{"costUSD": 0.1234567}`: cost("0.123457"),
		`{"costUSD": 0}`:         cost("0"),
		`{"costUSD": 100}`:       cost("100"),
		`{"costUSD": 1e-3}`:      cost("0.001"),
		`{"repositories": [{"name": "shop", "branch": "session/demo", "pushed": true, "pullRequestURL": "https://git.example/1", "new": 1}]}`: {
			SessionResult: v1alpha1.SessionResult{Repositories: []v1alpha1.SessionRepositoryResult{
				{Name: "shop", Branch: "session/demo", Pushed: true, PullRequestURL: "https://git.example/1"},
			}},
		},
		`{"repositories": [{"name": "` + n + `", "branch": "` + b + `", "commit": "` + c + `", "pullRequestURL": "` + u + `"}]}`: {
			SessionResult: v1alpha1.SessionResult{Repositories: []v1alpha1.SessionRepositoryResult{{Name: n, Branch: b, Commit: c, PullRequestURL: u}}},
		},
		`{"transcript": {"location": "s3://a/b", "truncated": true, "new": 1}}`: {
			SessionResult: v1alpha1.SessionResult{Transcript: &v1alpha1.ArchiveResult{Location: "s3://a/b", Truncated: true}},
		},
	} {
		got, err := ParseResult(message)
		require.True(t, err == nil, "%s: %v", message, err)
		require.Equal(t, want, got)
	}
	for message, want := range map[string]string{
		`done`:                     "not a valid JSON object",
		`[]`:                       "not a valid JSON object",
		`{} {}`:                    "data after its JSON object",
		`{"summary": []}`:          "not a valid JSON object",
		`{"costUSD": "a lot"}`:     "not a valid JSON object",
		`{"costUSD": -1}`:          "must be from 0",
		`{"costUSD": 1e999999999}`: "must be from 0",
		`{"usage": 3}`:             "usage is not a JSON object",
		`{"sdkSessionId": "` + strings.Repeat("x", 257) + `"}`:                           "more than 256",
		`{"sdkSessionId": "a\u0000b"}`:                                                   "NUL",
		`{"sdkSessionId": 7}`:                                                            "not a valid JSON object",
		`{"transcript": {"location": "` + strings.Repeat("x", maxLocation+1) + `"}}`:     "transcript.location is too long",
		`{"repositories": [{"name": "a"}, {"name": "a"}]}`:                               "occurs twice",
		`{"repositories": [{"name": "a", "pullRequestURL": "javascript:alert(1)"}]}`:     "is not an https:// URL",
		`{"repositories": {"name": "a"}}`:                                                "not a valid JSON object",
		`{"repositories": [{"name": "a", "commit": "` + strings.Repeat("c", 65) + `"}]}`: "is too long",
		`{"repositories": [` + strings.Repeat(`{"name": ""},`, 16) + `{"name": "b"}]}`:   "at most 16 are allowed",
		`{"summary": "` + strings.Repeat("x", 4096-13):                                   "cut off after 4096 bytes",
		`{"summary": "` + strings.Repeat("x", 3072-13):                                   "cut off after 3072 bytes", // of a Pod with 4 containers
		`{"summary": "` + strings.Repeat("x", 4096) + `"}`:                               "maximum is 4096",
	} {
		_, err := ParseResult(message)
		require.True(t, err != nil && strings.Contains(err.Error(), want), "%.80s: error %v, want: %s", message, err, want)
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
		require.NoError(t, err)
		s.exitRunner(0, string(raw)).decideAndRecord()
		value := s.updateSpec(requestNextRun).startAttempt().runnerVariable("AGENTIC_SDK_SESSION_ID")
		// Kubernetes replaces $(NAME), and $$ by $.
		isLiteral := !strings.Contains(strings.ReplaceAll(value, "$$", ""), "$")
		require.True(t, isLiteral && strings.ReplaceAll(value, "$$", "$") == id, "the runner gets %q for %q", value, id)
	}
}

func TestResultLimitDependsOnTheNumberOfContainers(t *testing.T) {
	for count, want := range map[int]string{0: "4096", 2: "4096", 3: "3072", 8: "1365"} {
		s := newScenario(t)
		pod := testbuilder.RunnerPod(&s.Runner.Spec)
		for i := range count {
			pod.InitContainers = append(pod.InitContainers, testbuilder.Sidecar("s"+strconv.Itoa(i), "s:1"))
		}
		require.Equal(t, want, s.startAttempt().runnerVariable("AGENTIC_RESULT_MAX_BYTES"))
	}
}

// The environment of a runner is an interface, which docs/runner.md documents.
func TestRunnerPageDocumentsRunnerEnvironment(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "runner.md"))
	require.NoError(t, err)
	s := setModel(newGitScenario(t))
	setArchive(archiveInClaim)(s)
	documented, set := regexp.MustCompile(`AGENTIC_\w+`).FindAllString(string(page), -1), []string{}
	for _, variable := range s.startAttempt().podSpec().Containers[0].Env {
		if strings.HasPrefix(variable.Name, v1alpha1.SessionEnvPrefix) {
			set = append(set, variable.Name)
		}
	}
	slices.Sort(documented)
	slices.Sort(set)
	require.Equal(t, slices.Compact(documented), set)
	for _, name := range []string{homeVariable, tempVariable, AnnotationRunFinished, secretsPath, homePath, tokenPath} {
		require.True(t, strings.Contains(string(page), name), "docs/runner.md does not document %s", name)
	}
}

// What a runner reports about its work, how it ends, what the session wants, and where its workspace is: only work that arrived, or
// that the session does not require, is Completed, and a workspace with the only copy outlives the session.
func TestWorkThatDidNotArriveIsNotCompleted(t *testing.T) {
	reports := map[string]struct {
		result string
		status metav1.ConditionStatus
		reason string
	}{
		"pushed":                      {`{"repositories": [{"name": "shop", "pushed": true}]}`, metav1.ConditionTrue, v1alpha1.ReasonPushed},
		"pushed, without a proposal":  {`{"repositories": [{"name": "shop", "pushed": true, "error": "no pull request"}]}`, metav1.ConditionTrue, v1alpha1.ReasonPushed},
		"nothing to push":             {`{"repositories": [{"name": "shop"}]}`, metav1.ConditionTrue, v1alpha1.ReasonNothingToPush},
		"rejected":                    {`{"repositories": [{"name": "shop", "error": "rejected"}]}`, metav1.ConditionFalse, v1alpha1.ReasonPushFailed},
		"another repository":          {`{"repositories": [{"name": "other", "pushed": true}]}`, metav1.ConditionUnknown, v1alpha1.ReasonPushUnknown},
		"no repository":               {`{"summary": "done"}`, metav1.ConditionUnknown, v1alpha1.ReasonPushUnknown},
		"a result that was cut off":   {`{"repositories": [{"name": "shop", "pushed": tr`, metav1.ConditionUnknown, v1alpha1.ReasonPushUnknown},
		"no result, as after SIGKILL": {"", metav1.ConditionUnknown, v1alpha1.ReasonPushUnknown},
	}
	for title, report := range reports {
		for _, code := range []int32{0, 1} {
			for _, policy := range []v1alpha1.PushFailurePolicy{"", v1alpha1.PushFailureFail, v1alpha1.PushFailureIgnore} {
				for _, persistent := range []bool{false, true} {
					t.Run(fmt.Sprintf("%s, code %d, policy %q, persistent %v", title, code, policy, persistent), func(t *testing.T) {
						s := newScenario(t)
						s.Session.Spec.Repos = []v1alpha1.SessionRepo{{GitSource: v1alpha1.GitSource{URL: "https://git.example/team/shop.git"}, AutoPush: true, OnPushFailure: policy}}
						s.Runner.Spec.Git = &v1alpha1.SessionGit{}
						if persistent {
							setPersistent(&s.Session.Spec)
						}
						s.startAttempt()
						if persistent {
							s.admitPod()
						}
						s.startRunner()
						s.decideAndRecord()
						s.wantCondition(v1alpha1.ConditionPushed, metav1.ConditionUnknown, v1alpha1.ReasonNotPushedYet)
						s.exitRunner(code, report.result)
						arrived := report.status == metav1.ConditionTrue
						switch {
						case code != 0:
							s.wantPhase(v1alpha1.SessionFailed, v1alpha1.ReasonExitedWithError)
						case arrived || policy == v1alpha1.PushFailureIgnore:
							s.wantPhase(v1alpha1.SessionCompleted, v1alpha1.ReasonCompleted)
						default:
							s.wantPhase(v1alpha1.SessionFailed, v1alpha1.ReasonPushFailed)
						}
						s.wantCondition(v1alpha1.ConditionPushed, report.status, report.reason)
						require.True(t, slices.Contains(s.eventReasons, v1alpha1.EventPushFailed) != arrived, "events %v", s.eventReasons)
						claim := s.claims[s.Session.Status.Workspace.ClaimRef.Name]
						require.True(t, !persistent || (len(claim.OwnerReferences) == 0) != arrived, "the claim is %+v", claim)
						message := s.findCondition(v1alpha1.ConditionPushed).Message
						require.True(t, strings.Contains(message, "PersistentVolumeClaim fix-workspace, is kept") == (persistent && !arrived),
							"message %q", message)
					})
				}
			}
		}
	}
}

// Without the container for git, an image pushes on its own, and need not report anything.
func TestAnImageThatPushesItselfNeedNotReport(t *testing.T) {
	for result, phase := range map[string]v1alpha1.SessionPhase{
		`{"summary": "done"}`: v1alpha1.SessionCompleted,
		`{"repositories": [{"name": "shop", "error": "rejected"}]}`: v1alpha1.SessionFailed,
	} {
		s := newScenario(t)
		s.Session.Spec.Repos = []v1alpha1.SessionRepo{{GitSource: v1alpha1.GitSource{URL: "https://git.example/team/shop.git"}, AutoPush: true}}
		s.startAttempt().startRunner().exitRunner(0, result).decideAndRecord()
		require.True(t, s.Session.Status.Phase == phase, "%s: %s", result, s.Session.Status.Phase)
	}
}

// Sessions with the same name, also one after another, must not push to the same branch.
func TestTheBranchOfASessionHasItsIdentity(t *testing.T) {
	branches := map[v1alpha1.GitBranch]bool{}
	for _, uid := range []types.UID{"11111111-1111-1111", "22222222-1111-1111"} {
		for _, push := range []v1alpha1.GitBranch{"", "fix/bug"} {
			s := newGitScenario(t)
			s.Session.UID = uid
			s.Session.Spec.Repos[0].Push.Branch = push
			in := RunnerInputs{}
			inputs := newObjectBuilder(newFacts(s.Observation), &s.Session.Status).newInputsSecret()
			require.NoError(t, json.Unmarshal(inputs.Data[sessionFileKey], &in))
			branches[in.Repos[0].Push.Branch] = true
		}
	}
	want := map[v1alpha1.GitBranch]bool{"session/fix-11111111": true, "session/fix-22222222": true, "fix/bug": true}
	require.True(t, maps.Equal(branches, want), "branches %v, want %v", branches, want)
}
