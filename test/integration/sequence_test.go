package integration

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/sequentialjob"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

func TestStepsRunOneAfterAnother(t *testing.T) {
	t.Parallel()
	s := createSequence(t, testbuilder.SequentialJob("etl", "").Step("extract").Step("transform").Step("load").Obj())
	for i, step := range []string{"extract", "transform", "load"} {
		s.waitForPod(step)
		if jobs := s.listJobs(); len(jobs) != i+1 {
			t.Fatalf("%d Jobs while step %s runs, want %d", len(jobs), step, i+1)
		}
		s.succeedStep(step)
	}
	s.waitForPhase(v1alpha1.PhaseCompleted)
	s.wantCondition(v1alpha1.ConditionAvailable, metav1.ConditionTrue, v1alpha1.ReasonCompleted)
	s.wantCondition(v1alpha1.ConditionProgressing, metav1.ConditionFalse, v1alpha1.ReasonCompleted)
	if sequentialjob.FormatProgress(s.sj, false) != "3/3" || s.sj.Status.CompletionTime == nil {
		t.Errorf("progress %q, completion %v", sequentialjob.FormatProgress(s.sj, false), s.sj.Status.CompletionTime)
	}
	s.waitUntil("the finalizer to be removed", func(sj *v1alpha1.SequentialJob) bool {
		return !controllerutil.ContainsFinalizer(sj, v1alpha1.SequentialJobFinalizer)
	})
	for _, reason := range []string{v1alpha1.EventJobStarted, v1alpha1.EventJobCompleted, v1alpha1.EventCompleted} {
		s.wantEvent(reason)
	}
}

func TestFailedStepSkipsLaterStepsAndRunsFinally(t *testing.T) {
	t.Parallel()
	s := createSequence(t, testbuilder.SequentialJob("migrate", "").Step("backup").Step("migrate").Step("seed").Finally("unlock").Obj())
	s.succeedStep("backup")
	s.endStep("migrate", 7, "no such table")
	s.succeedStep("unlock")
	s.waitForPhase(v1alpha1.PhaseFailed)
	s.wantCondition(v1alpha1.ConditionFailed, metav1.ConditionTrue, v1alpha1.ReasonStepFailed)
	if step := s.stepStatus("migrate"); step.Message != "container migrate exited with code 7: no such table" {
		t.Errorf("message %q", step.Message)
	}
	if phase := s.stepStatus("seed").Phase; phase != v1alpha1.StepSkipped {
		t.Errorf("seed is %s", phase)
	}
	if s.sj.Status.CompletionTime == nil {
		t.Error("a failed run has no completionTime")
	}
	s.wantEvent(v1alpha1.EventJobFailed)
	s.wantEvent(v1alpha1.EventFailed)
}

func TestRerunStartsAtTheFailedStepAndKeepsEarlierOutcomes(t *testing.T) {
	t.Parallel()
	s := createSequence(t, testbuilder.SequentialJob("rerun", "").Step("backup").Step("migrate").Obj())
	s.succeedStep("backup")
	s.endStep("migrate", 1, "")
	s.waitForPhase(v1alpha1.PhaseFailed)
	backup := *s.stepStatus("backup")
	s.patchSequence(func(sj *v1alpha1.SequentialJob) {
		sj.Spec.Containers[1].Args = []string{"--fixed"}
		sj.Spec.Rerun = &v1alpha1.SequenceRerun{Rerun: v1alpha1.Rerun{ID: "2"}, From: v1alpha1.RerunFromFailed}
	})
	s.waitUntil("the Job of run 2", func(*v1alpha1.SequentialJob) bool { return len(s.listJobs()) == 3 })
	s.succeedStep("migrate")
	s.waitForPhase(v1alpha1.PhaseCompleted)
	if kept := s.stepStatus("backup"); kept.JobUID != backup.JobUID || kept.Run != 1 {
		t.Errorf("backup was run again: %+v", kept)
	}
	if jobs := s.listJobs(); len(jobs) != 3 || !slices.Contains(jobs[2].Spec.Template.Spec.Containers[0].Args, "--fixed") {
		t.Errorf("%d Jobs", len(jobs))
	}
	s.wantEvent(v1alpha1.EventRerunStarted)
}

func TestFieldsOfAnOutputReachLaterStepsAndTheResults(t *testing.T) {
	t.Parallel()
	sj := testbuilder.SequentialJob("json", "").Step("build", testbuilder.WithStepOptions(func(o *v1alpha1.StepOptions) {
		o.Outputs, o.OutputFormat = true, v1alpha1.OutputJSON
	})).Step("scan", testbuilder.WithStepOptions(func(o *v1alpha1.StepOptions) { o.When = "outputs.build.count > 1" })).Step("ship").Obj()
	sj.Spec.Results = []v1alpha1.Parameter{{Name: "VERSION", Value: "outputs.build.tag"}}
	s := createSequence(t, sj)
	s.endStep("build", 0, `{"tag": "v1", "count": 1}`)
	s.waitForStep("scan", v1alpha1.StepSkipped)
	env := s.waitForJob("ship").Spec.Template.Spec.Containers[0].Env
	if at := slices.IndexFunc(env, func(v corev1.EnvVar) bool { return v.Name == "STEP_BUILD_OUTPUT_TAG" }); at < 0 || env[at].Value != "v1" {
		t.Errorf("variables %+v", env)
	}
	s.succeedStep("ship")
	s.waitForPhase(v1alpha1.PhaseCompleted)
	if got := s.sj.Status.Results; len(got) != 1 || got[0] != (v1alpha1.Parameter{Name: "VERSION", Value: "v1"}) {
		t.Errorf("results %+v", got)
	}
}

// deleteWorkspace deletes the workspace of a suspended run, after its first step.
func (s *sequenceTest) deleteWorkspace() *corev1.PersistentVolumeClaim {
	s.t.Helper()
	s.waitForPod("a")
	s.patchSequence(func(sj *v1alpha1.SequentialJob) { sj.Spec.Suspend = true })
	s.succeedStep("a")
	s.waitForPhase(v1alpha1.PhaseSuspended)
	claim := &corev1.PersistentVolumeClaim{}
	claim.Name, claim.Namespace = s.waitForJob("a").Spec.Template.Spec.Volumes[0].PersistentVolumeClaim.ClaimName, s.sj.Namespace
	if err := cluster.Get(s.t.Context(), client.ObjectKeyFromObject(claim), claim); err != nil {
		s.t.Fatal(err)
	}
	if s.sj.Status.Workspace.UID != claim.UID {
		s.t.Errorf("the UID %q is recorded, want %q", s.sj.Status.Workspace.UID, claim.UID)
	}
	if err := cluster.Delete(s.t.Context(), claim); err != nil {
		s.t.Fatal(err)
	}
	return claim
}

func TestSequenceRestartsWithAnEmptyWorkspaceIfItsSpecSaysSo(t *testing.T) {
	t.Parallel()
	s := createSequence(t, testbuilder.SequentialJob("restart", "").Step("a").Step("b").Workspace(v1alpha1.WorkspaceDelete).RecreateLostWorkspace().Obj())
	claim := s.deleteWorkspace()
	job := s.waitForJob("a")
	s.patchSequence(func(sj *v1alpha1.SequentialJob) { sj.Spec.Suspend = false })
	s.waitUntil("the second run", func(sj *v1alpha1.SequentialJob) bool {
		return sj.Status.Run == 2 && sj.Status.Workspace.UID != "" && sj.Status.Workspace.UID != claim.UID
	})
	s.wantEvent(v1alpha1.EventWorkspaceLost)
	s.waitUntilDeleted(job)
	s.succeedStep("a")
	s.succeedStep("b")
	s.waitForPhase(v1alpha1.PhaseCompleted)
}
