package sequence

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/core"
	"github.com/yardmaster/yardmaster/internal/testbuilder"
)

func TestWorkspaceIsCreatedBeforeTheFirstStep(t *testing.T) {
	s := newTestEnv(t, testbuilder.SequentialJob("a", "ns").Step("build").Workspace(v1alpha1.WorkspaceDelete).Obj())
	decision := s.reconcile()
	if decision.CreateJob == nil || decision.Workspace == nil {
		t.Fatalf("want a Job and a workspace in one decision, got %v, %v", decision.CreateJob, decision.Workspace)
	}
	if got := decision.Workspace.Spec.Resources.Requests[corev1.ResourceStorage]; got.String() != "1Gi" {
		t.Errorf("want 1Gi, got %s", got.String())
	}
}

func TestEveryStepMountsTheWorkspace(t *testing.T) {
	sj := testbuilder.SequentialJob("a", "ns").Step("build").Step("test").Finally("cleanup").Workspace(v1alpha1.WorkspaceDelete).Obj()
	for _, step := range allStepSpecs(&sj.Spec) {
		pod := podTemplate(sj, step).Spec
		want := []corev1.VolumeMount{{Name: "workspace", MountPath: "/workspace"}}
		if diff := cmp.Diff(want, pod.Containers[0].VolumeMounts); diff != "" {
			t.Errorf("mounts of %s (-want, +got):\n%s", step.Name, diff)
		}
		if got := pod.Volumes[0].PersistentVolumeClaim.ClaimName; got != WorkspaceName(sj) {
			t.Errorf("step %s mounts claim %s", step.Name, got)
		}
	}
}

func TestStepCanReplaceTheWorkspaceMount(t *testing.T) {
	elsewhere := testbuilder.ChangeContainer(func(c *corev1.Container) {
		c.VolumeMounts = []corev1.VolumeMount{{Name: "scratch", MountPath: "/workspace"}}
	})
	sj := testbuilder.SequentialJob("a", "ns").Step("build", elsewhere).Workspace(v1alpha1.WorkspaceDelete).Obj()
	want := []corev1.VolumeMount{{Name: "scratch", MountPath: "/workspace"}}
	if diff := cmp.Diff(want, podTemplate(sj, &sj.Spec.Containers[0]).Spec.Containers[0].VolumeMounts); diff != "" {
		t.Errorf("mounts (-want, +got):\n%s", diff)
	}
}

func TestRetainedWorkspaceHasNoOwner(t *testing.T) {
	tests := map[string]struct {
		retention  v1alpha1.WorkspaceRetention
		wantOwners int
	}{
		"Delete: the claim has an owner": {retention: v1alpha1.WorkspaceDelete, wantOwners: 1},
		"Retain: the claim has no owner": {retention: v1alpha1.WorkspaceRetain, wantOwners: 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			sj := testbuilder.SequentialJob("a", "ns").Step("build").Workspace(test.retention).Obj()
			claim := workspaceClaim(sj)
			if got := len(claim.OwnerReferences); got != test.wantOwners {
				t.Errorf("want %d owners, got %d", test.wantOwners, got)
			}
			if !core.WasCreatedFor(sj, claim, v1alpha1.LabelSequentialJobUID) {
				t.Error("the claim is not recognized")
			}
		})
	}
}

func TestClaimOfAnotherOwnerIsRecognized(t *testing.T) {
	mine := testbuilder.SequentialJob("a", "ns").Step("build").Workspace(v1alpha1.WorkspaceDelete).Obj()
	other := testbuilder.SequentialJob("b", "ns").Step("build").Workspace(v1alpha1.WorkspaceDelete).Obj()
	labelled := workspaceClaim(other)
	labelled.Labels[v1alpha1.LabelSequentialJobUID] = string(mine.UID)
	tests := map[string]*corev1.PersistentVolumeClaim{
		"a claim without an owner":                        {},
		"a claim of another SequentialJob":                workspaceClaim(other),
		"a claim of another SequentialJob with our label": labelled,
	}
	for name, claim := range tests {
		t.Run(name, func(t *testing.T) {
			if core.WasCreatedFor(mine, claim, v1alpha1.LabelSequentialJobUID) {
				t.Error("the claim is recognized as ours")
			}
		})
	}
}
