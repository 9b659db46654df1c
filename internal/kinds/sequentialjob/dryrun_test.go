package sequentialjob

import (
	"fmt"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

// Without this, every reconciliation before the first stored status repeats the dry run.
func TestPendingStepGetsOneDryRunForEachGeneration(t *testing.T) {
	sj := testbuilder.SequentialJob("a", "ns").Step("build").Step("test").Obj()
	started := Decide(Observation{SequentialJob: sj, Now: time.Unix(100, 0), Answers: Answers{DryRun: &DryRunResult{}}})
	sj.Status = started.Status
	job := started.CreateJob.DeepCopy()
	job.UID, job.CreationTimestamp = "job", metav1.Unix(100, 0)
	in := Observation{SequentialJob: sj, Jobs: []*batchv1.Job{job}, Now: time.Unix(101, 0), Answers: Answers{JobsByName: map[string]*batchv1.Job{job.Name: job}}}

	if decision := Decide(in); decision.Question != nil {
		t.Errorf("a second reconciliation asks %+v", decision.Question)
	}
	sj.Generation++
	sj.Spec.Containers[1].Image, in.Answers.HasAllJobs = "other", true
	if decision := Decide(in); decision.Question == nil || len(decision.Question.DryRun) != 1 {
		t.Errorf("after a change it asks %+v, want a dry run of the pending step", decision.Question)
	}
}

func TestSuspendedSequenceIsTriedOnceForEachGeneration(t *testing.T) {
	s := newTestEnv(t, testbuilder.SequentialJob("a", "ns").Step("build").Step("test").Suspend().Obj())
	s.dryRunRefusals = []decision.Refusal{{Class: decision.Invalid, Kind: "Job", Step: "test", Message: "bad quantity"}}
	s.reconcile()
	s.wantCondition(v1alpha1.ConditionSpecAccepted, `False StepInvalid: step "test": bad quantity`)
	s.wantPhase(v1alpha1.PhaseSuspended, v1alpha1.ReasonSuspended)
	s.wantSteps("build: Pending", "test: Pending")

	s.changeSpec(func(spec *v1alpha1.SequentialJobSpec) { spec.Containers[1].Image = "corrected" })
	s.dryRunRefusals = nil
	s.reconcile()
	s.wantCondition(v1alpha1.ConditionSpecAccepted, "True Accepted: ")

	s.changeSpec(func(spec *v1alpha1.SequentialJobSpec) { spec.Suspend = false })
	s.reconcile()
	s.wantCreated("build")
}

func TestResumedSequenceWithARefusedStepFailsBeforeItsFirstStep(t *testing.T) {
	s := newTestEnv(t, testbuilder.SequentialJob("a", "ns").Step("build").Step("test").Suspend().Obj())
	s.dryRunRefusals = []decision.Refusal{{Class: decision.Invalid, Kind: "Job", Step: "test", Message: "bad quantity"}}
	s.reconcile()
	s.changeSpec(func(spec *v1alpha1.SequentialJobSpec) { spec.Suspend = false })
	s.reconcile()
	s.wantCreated()
	s.wantPhase(v1alpha1.PhaseFailed, v1alpha1.ReasonStepInvalid)
}

func TestRefusedPodKeepsTheRunFromStarting(t *testing.T) {
	refusal := func(class decision.Class, step string) decision.Refusal {
		return decision.Refusal{Class: class, Kind: "Pod", Step: step, Message: "no"}
	}
	tests := map[string]struct {
		refusal     decision.Refusal
		wantBlocked bool
		wantStep    string
	}{
		"a policy refuses the first step's Pod":          {refusal(decision.PolicyDenied, "build"), true, "build: Pending, PodNotCreated"},
		"a policy refuses a later step's Pod":            {refusal(decision.PolicyDenied, "test"), true, "build: Pending"},
		"a quota has no room for the first step's Pod":   {refusal(decision.QuotaExceeded, "build"), true, "build: Pending, PodNotCreated"},
		"a quota has no room for a later step's Pod":     {refusal(decision.QuotaExceeded, "test"), false, "build: Starting"},
		"the first step's ServiceAccount does not exist": {refusal(decision.ServiceAccountMissing, "build"), true, "build: Pending, PodNotCreated"},
		"a later step's ServiceAccount does not exist":   {refusal(decision.ServiceAccountMissing, "test"), false, "build: Starting"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := newTestEnv(t, testbuilder.SequentialJob("a", "ns").Step("build").Step("test").Obj())
			s.dryRunRefusals = []decision.Refusal{test.refusal}
			d := s.reconcile()
			message := fmt.Sprintf("step %q: its Pod was refused in a dry run: no", test.refusal.Step)
			s.wantCondition(v1alpha1.ConditionSpecAccepted, "True Accepted: "+message)
			if steps := s.sj.Status.Steps; test.wantStep != strings.TrimSuffix(fmt.Sprintf("build: %s, %s", steps[0].Phase, steps[0].Reason), ", ") {
				t.Errorf("the first step is %s, %q; want %s", steps[0].Phase, steps[0].Reason, test.wantStep)
			}
			if !test.wantBlocked {
				s.wantCreated("build")
				return
			}
			s.wantCreated()
			s.wantCondition(v1alpha1.ConditionBlocked, "True PodNotCreated: "+message+"; remove the cause, or correct the step")
			s.wantPhase(v1alpha1.PhasePending, v1alpha1.ReasonWaiting)
			if got := s.stepStatus(test.refusal.Step).Message; got != "its Pod was refused in a dry run: no" {
				t.Errorf("message of the step: %q", got)
			}
			if d.RequeueAfter != time.Second {
				t.Errorf("the next try is in %s, want 1 s", d.RequeueAfter)
			}
			s.dryRunRefusals = nil
			s.reconcileAfter(time.Second)
			s.wantCreated("build")
			s.reconcileAfter(time.Second)
			s.wantCondition(v1alpha1.ConditionBlocked, "False NotBlocked: ")
			if got := s.stepStatus(test.refusal.Step); got.Message != "" {
				t.Errorf("message of the step after it was accepted: %q", got.Message)
			}
		})
	}
}

func TestPodOfADryRunIsThatOfTheJobController(t *testing.T) {
	sj := testbuilder.SequentialJob("a", "ns").Step("build").Obj()
	sj.Spec.Template = &v1alpha1.PodTemplate{}
	sj.Spec.Template.Labels = map[string]string{v1alpha1.LabelManagedBy: "Helm", "team": "a"}
	sj.Spec.Template.Annotations = map[string]string{"team": "a"}
	sj.Spec.Template.Spec.ServiceAccountName = "builder"
	job := stepJob(sj, &sj.Spec.Containers[0], 1, 1)
	job.Spec.Template.Labels[batchv1.JobNameLabel] = job.Name // as the API server does
	pod := PodOf(job)
	if pod.GenerateName != job.Name+"-" || pod.Namespace != "ns" || pod.Labels[batchv1.JobNameLabel] != job.Name || pod.Labels["team"] != "a" ||
		pod.Annotations["team"] != "a" || pod.Spec.ServiceAccountName != "builder" || pod.Spec.Containers[0].Name != "build" {
		t.Errorf("Pod %+v", pod)
	}
	// The policy yardmaster-own-objects requires them.
	if owner := metav1.GetControllerOf(pod); owner == nil || owner.UID != sj.UID || owner.Kind != "SequentialJob" {
		t.Errorf("owner %+v", owner)
	}
	if got := pod.Labels[v1alpha1.LabelManagedBy]; got != v1alpha1.ManagedByValue || pod.Labels[v1alpha1.LabelSequentialJobUID] != string(sj.UID) {
		t.Errorf("labels %v", pod.Labels)
	}
}
