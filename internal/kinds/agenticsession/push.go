package agenticsession

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
)

// pushState returns whether the work of an attempt in these repositories is on their servers, according to its result; unchanged
// if none of them is pushed. The result is nil if the attempt left none.
func pushState(repos []v1alpha1.SessionRepo, result *v1alpha1.SessionResult) decision.State {
	var failed, unknown []string
	pushed := false
	for i := range repos {
		if !repos[i].AutoPush {
			continue
		}
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
func (e *evaluation) pushedRepos(required bool) []v1alpha1.SessionRepo {
	return slices.DeleteFunc(slices.Clone(e.spec.Repos), func(r v1alpha1.SessionRepo) bool {
		return !r.AutoPush || required && r.OnPushFailure == v1alpha1.PushFailureIgnore
	})
}

// requirePush fails a completed attempt whose work did not arrive. Without a container for git, the image pushes on its own, and need
// not report anything.
func (e *evaluation) requirePush(v verdict) verdict {
	if v.outcome != v1alpha1.RunCompleted {
		return v
	}
	repos := e.pushedRepos(true)
	state := pushState(repos, e.attemptResult())
	if len(repos) == 0 || state.Status == metav1.ConditionTrue || state.Status == metav1.ConditionUnknown && !e.hasGitContainer() {
		return v
	}
	v.outcome, v.Reason, v.Message = v1alpha1.RunFailed, v1alpha1.ReasonPushFailed, "the agent completed its work, and not all of it was pushed: "+state.Message
	return v
}

// hasGitContainer reports whether the open attempt has the container that pushes, as far as its SessionRunner did not change.
func (e *evaluation) hasGitContainer() bool {
	return e.observation.Runner != nil && e.observation.Runner.Spec.Git != nil
}

// attemptResult returns the result of the open attempt; nil without one.
func (e *evaluation) attemptResult() *v1alpha1.SessionResult {
	if !hasResult(&e.status) {
		return nil
	}
	return e.status.Result
}

// setPushed sets the condition Pushed at the end of the open attempt. An attempt whose runner did not start changes nothing.
func (e *evaluation) setPushed() {
	repos := e.pushedRepos(false)
	if len(repos) == 0 || e.status.Attempt.RunnerStartTime == nil && !hasRun(e.pod) {
		return
	}
	state := pushState(repos, e.attemptResult())
	if claim := e.status.Workspace.ClaimRef.Name; claim != "" && state.Status != metav1.ConditionTrue {
		state.Message += fmt.Sprintf("; the workspace, PersistentVolumeClaim %s, is kept", claim)
	}
	e.setCondition(v1alpha1.ConditionPushed, state)
}

// isWorkMissing reports whether work of the last attempt may be only in the workspace.
func isWorkMissing(status *v1alpha1.AgenticSessionStatus) bool {
	c := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionPushed)
	return c != nil && (c.Reason == v1alpha1.ReasonPushFailed || c.Reason == v1alpha1.ReasonPushUnknown)
}

// keepWorkspace makes the workspace of a session at rest outlive the session if it may have the only copy of work. The workspace stays
// until a user deletes it, also if a later attempt pushes the work.
func (e *evaluation) keepWorkspace() *Question {
	name := e.status.Workspace.ClaimRef.Name
	if name == "" || e.status.Workspace.UID == "" || e.status.Attempt.JobName != "" || !isWorkMissing(&e.status) {
		return nil
	}
	claim, answered := e.observation.Answers.Claims[name]
	if !answered {
		return &Question{Claim: name}
	}
	if claim != nil && claim.UID == e.status.Workspace.UID && claim.DeletionTimestamp.IsZero() && len(KeptOwners(claim)) < len(claim.OwnerReferences) {
		e.decision.KeepClaim = claim
	}
	return nil
}

// KeptOwners returns the owners of a claim without the sessions: nothing deletes the claim with a session then.
func KeptOwners(claim *metav1.PartialObjectMetadata) []metav1.OwnerReference {
	return slices.DeleteFunc(slices.Clone(claim.OwnerReferences), func(owner metav1.OwnerReference) bool { return owner.Kind == "AgenticSession" })
}
