package agenticsession

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
)

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

// workspaceToKeep returns the claim of a session at rest that must outlive the session, because it may have the only copy of work. The
// claim stays until a user deletes it, also if a later attempt pushes the work.
func workspaceToKeep(f *facts, status *v1alpha1.AgenticSessionStatus) (*metav1.PartialObjectMetadata, *Question) {
	name := status.Workspace.ClaimRef.Name
	if name == "" || status.Workspace.UID == "" || status.Attempt.JobName != "" || !isWorkMissing(status) {
		return nil, nil
	}
	claim, answered := f.Answers.Claims[name]
	switch {
	case !answered:
		return nil, &Question{Claim: name}
	case claim == nil, claim.UID != status.Workspace.UID, !claim.DeletionTimestamp.IsZero(), len(KeptOwners(claim)) == len(claim.OwnerReferences):
		return nil, nil
	}
	return claim, nil
}

// KeptOwners returns the owners of a claim without the sessions: nothing deletes the claim with a session then.
func KeptOwners(claim *metav1.PartialObjectMetadata) []metav1.OwnerReference {
	return slices.DeleteFunc(slices.Clone(claim.OwnerReferences), func(owner metav1.OwnerReference) bool { return owner.Kind == "AgenticSession" })
}
