package agenticsession

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/require"
)

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
