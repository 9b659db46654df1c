package sequentialjob

import (
	"fmt"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/internal/kinds/policy"
	"github.com/yardmaster/yardmaster/test/assert"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

func TestInvalidLastStepFailsTheRunAtItsStart(t *testing.T) {
	s := newTestEnv(t, sequence("build", "test").Finally("cleanup").Obj())
	s.dryRunRefusals = []decision.Refusal{{Class: decision.Invalid, Step: "test", Message: "bad quantity"}}
	s.pass(
		wait(0), created(), steps("build: Skipped, Invalid", "test: Skipped, Invalid", "cleanup: Skipped, Invalid"),
		phase(v1alpha1.PhaseFailed, v1alpha1.ReasonStepInvalid), events(v1alpha1.EventSpecRejected, v1alpha1.EventFailed),
		hasCondition(v1alpha1.ConditionSpecAccepted, `False StepInvalid: step "test": bad quantity`),
		hasCondition(v1alpha1.ConditionFailed, `True StepInvalid: step "test": bad quantity`),
		func(s *testEnv) { assert.Equal(s.t, "reason", v1alpha1.ReasonStepInvalid, s.sj.Status.Reason) },
	)
}

func TestInvalidSpecFailsTheRunWithoutAWebhook(t *testing.T) {
	startRun(t, sequence().Step("build", testbuilder.StepImage(""))).pass(
		created(), phase(v1alpha1.PhaseFailed, v1alpha1.ReasonInvalid), hasCondition(v1alpha1.ConditionSpecAccepted,
			"False Invalid: spec.containers[0].image: Required value: set an image in the step or in the template's container named step"),
	)
}

func TestExceededQuotaDelaysTheRun(t *testing.T) {
	quota := decision.Refusal{Class: decision.QuotaExceeded, Step: "build", Message: "exceeded quota: pods"}
	for name, refuse := range map[string]func(*testEnv){
		"refused by the dry run": func(s *testEnv) { s.dryRunRefusals = []decision.Refusal{quota} },
		"refused when the claim of its workspace is created": func(s *testEnv) {
			s.sj = sequence("build").Workspace(v1alpha1.WorkspaceDelete).Obj()
			s.claimRefusal = &decision.Refusal{Class: quota.Class, Kind: "PersistentVolumeClaim", Message: quota.Message}
		},
		"refused when the Job is created":                    func(s *testEnv) { s.createRefusals["build"] = &quota },
		"refused by the dry run and when the Job is created": func(s *testEnv) { s.dryRunRefusals, s.createRefusals["build"] = []decision.Refusal{quota}, &quota },
	} {
		t.Run(name, func(t *testing.T) {
			s := newTestEnv(t, sequence("build").Obj())
			refuse(s)
			d := s.reconcile()
			s.pass(created(), hasCondition(v1alpha1.ConditionResourcesUnavailable, "True QuotaExceeded: exceeded quota: pods"))
			s.pass(hasCondition(v1alpha1.ConditionFailed, "False NotFailed: "), events(v1alpha1.EventResourcesUnavailable))
			assert.Equal(t, "wait for the next decision", time.Second, d.RequeueAfter)
			assert.Equal(t, "wait for the next decision", 10*time.Second, s.reconcileAfter(10*time.Second).RequeueAfter)
			assert.Equal(t, "wait for the next decision", time.Minute, s.reconcileAfter(time.Hour).RequeueAfter)
			s.pass(events())
			s.dryRunRefusals, s.claimRefusal = nil, nil
			delete(s.createRefusals, "build")
			s.pass(wait(time.Minute), created("build"), wait(time.Second), steps("build: Starting"))
			require.True(t, !meta.IsStatusConditionTrue(s.sj.Status.Conditions, v1alpha1.ConditionResourcesUnavailable), "the condition is still True")
		})
	}
}

func TestQuotaOfALaterStepDoesNotDelayTheFirst(t *testing.T) {
	s := newTestEnv(t, sequence("build", "test").Obj())
	s.dryRunRefusals = []decision.Refusal{{Class: decision.QuotaExceeded, Step: "test", Message: "exceeded quota"}}
	s.pass(wait(0), created("build"))
}

func TestARunWaitsUntilPoliciesAllowAllImages(t *testing.T) {
	for title, test := range map[string]struct {
		change func(spec *v1alpha1.SequentialJobSpec)
		want   string
	}{
		"the image of the last step": {
			func(spec *v1alpha1.SequentialJobSpec) { spec.Containers[1].Image = "evil:1" },
			`True ImageNotAllowed: step "cleanup": image "evil:1" of container "cleanup" is not allowed by Policy team, which allows: good:*`,
		},
		"an init container of the template": {
			func(spec *v1alpha1.SequentialJobSpec) {
				spec.Template = &v1alpha1.PodTemplate{PodTemplateSpec: corev1.PodTemplateSpec{Spec: corev1.PodSpec{InitContainers: []corev1.Container{{Name: "init", Image: "evil:1"}}}}}
			},
			`True ImageNotAllowed: step "build": image "evil:1" of init container "init" is not allowed by Policy team, which allows: good:*`,
		},
	} {
		t.Run(title, func(t *testing.T) {
			sj := sequence().Step("build", testbuilder.StepImage("good:1")).Finally("cleanup", testbuilder.StepImage("good:2")).Obj()
			test.change(&sj.Spec)
			s := newTestEnv(t, sj)
			s.policies = testbuilder.AllowImages("good:*")
			s.pass(
				wait(0), created(), phase(v1alpha1.PhasePending, v1alpha1.ReasonWaiting), hasCondition(v1alpha1.ConditionBlocked, test.want),
				hasCondition(v1alpha1.ConditionStalled, test.want), events(v1alpha1.EventPolicyViolated),
			)
			s.policies = testbuilder.AllowImages("good:*", "evil:1")
			s.pass(wait(time.Second), created("build"), wait(2*time.Second), hasCondition(v1alpha1.ConditionBlocked, "False NotBlocked: "))
		})
	}
}

func TestAChangedPolicyAffectsTheNextStepOnly(t *testing.T) {
	s := startRun(t, sequence().Step("build", testbuilder.StepImage("one:1")).Step("test", testbuilder.StepImage("two:1")))
	s.policies = testbuilder.AllowImages("three:*")
	decision := s.reconcile()
	require.True(t, !decision.HasActions(), "the running step is affected: %+v", decision)
	s.pass(succeed("build"), created("build"), steps("build: Succeeded", "test: Starting, ImageNotAllowed"), hasCondition(v1alpha1.ConditionBlocked,
		`True ImageNotAllowed: step "test": image "two:1" of container "test" is not allowed by Policy team, which allows: three:*`))
	s.policies = policy.Selection{}
	s.pass(wait(time.Second), created("build", "test"))
}

// Without this, every reconciliation before the first stored status repeats the dry run.
func TestPendingStepGetsOneDryRunForEachGeneration(t *testing.T) {
	sj := sequence("build", "test").Obj()
	decision := Decide(Observation{SequentialJob: sj, Now: time.Unix(100, 0)})
	question := decision.Question
	require.True(t, len(question.DryRun) == 2 && question.FirstFollows && !decision.HasActions(), "want only a dry run of 2 Jobs, got %+v", decision)
	waits := Decide(Observation{SequentialJob: sequence().Step("build", needsApprovalBefore()).Obj()})
	require.True(t, !waits.Question.FirstFollows, "a Job that waits for an approval is not created at once")
	started := Decide(Observation{SequentialJob: sj, Now: time.Unix(100, 0), Answers: Answers{DryRun: &DryRunResult{}}})
	sj.Status = started.Status
	job := started.CreateJob.DeepCopy()
	job.UID, job.CreationTimestamp = "job", metav1.Unix(100, 0)
	in := Observation{SequentialJob: sj, Jobs: []*batchv1.Job{job}, Now: time.Unix(101, 0), Answers: Answers{JobsByName: map[string]*batchv1.Job{job.Name: job}}}
	require.True(t, Decide(in).Question == nil, "a second reconciliation asks a question")
	sj.Generation++
	sj.Spec.Containers[1].Image, in.Answers.HasAllJobs = "other", true
	decision = Decide(in)
	require.True(t, decision.Question != nil && len(decision.Question.DryRun) == 1, "after a change it asks %+v", decision.Question)
}

func TestSuspendedSequenceIsTriedOnceForEachGeneration(t *testing.T) {
	s := newTestEnv(t, sequence("build", "test").Suspend().Obj())
	s.dryRunRefusals = []decision.Refusal{{Class: decision.Invalid, Kind: "Job", Step: "test", Message: "bad quantity"}}
	s.pass(
		wait(0), hasCondition(v1alpha1.ConditionSpecAccepted, `False StepInvalid: step "test": bad quantity`),
		phase(v1alpha1.PhaseSuspended, v1alpha1.ReasonSuspended), steps("build: Pending", "test: Pending"),
	)
	s.dryRunRefusals = nil
	s.pass(edit(setImage("corrected")), hasCondition(v1alpha1.ConditionSpecAccepted, "True Accepted: "), resumeRun, created("build"))
}

func TestRefusedPodKeepsTheRunFromStarting(t *testing.T) {
	refusal := func(class decision.Class, step string) decision.Refusal {
		return decision.Refusal{Class: class, Kind: "Pod", Step: step, Message: "no"}
	}
	for name, test := range map[string]struct {
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
	} {
		t.Run(name, func(t *testing.T) {
			s := newTestEnv(t, sequence("build", "test").Obj())
			s.dryRunRefusals = []decision.Refusal{test.refusal}
			d := s.reconcile()
			message := fmt.Sprintf("step %q: its Pod was refused in a dry run: no", test.refusal.Step)
			s.pass(hasCondition(v1alpha1.ConditionSpecAccepted, "True Accepted: "+message))
			if steps := s.sj.Status.Steps; test.wantStep != strings.TrimSuffix(fmt.Sprintf("build: %s, %s", steps[0].Phase, steps[0].Reason), ", ") {
				t.Errorf("the first step is %s, %q; want %s", steps[0].Phase, steps[0].Reason, test.wantStep)
			}
			if !test.wantBlocked {
				s.pass(created("build"))
				return
			}
			s.pass(created(), phase(v1alpha1.PhasePending, v1alpha1.ReasonWaiting),
				hasCondition(v1alpha1.ConditionBlocked, "True PodNotCreated: "+message+"; remove the cause, or correct the step"))
			assert.Equal(t, "message of the step", "its Pod was refused in a dry run: no", s.stepStatus(test.refusal.Step).Message)
			assert.Equal(t, "wait until the next try", time.Second, d.RequeueAfter)
			s.dryRunRefusals = nil
			s.pass(wait(time.Second), created("build"), wait(2*time.Second), hasCondition(v1alpha1.ConditionBlocked, "False NotBlocked: "))
			assert.Equal(t, "message of the step after it was accepted", "", s.stepStatus(test.refusal.Step).Message)
		})
	}
}

func TestPodOfADryRunIsThatOfTheJobController(t *testing.T) {
	sj := sequence("build").Obj()
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
	owner := metav1.GetControllerOf(pod)
	require.True(t, owner != nil && owner.UID == sj.UID && owner.Kind == "SequentialJob", "owner %+v", owner)
	require.True(t, pod.Labels[v1alpha1.LabelManagedBy] == v1alpha1.ManagedByValue && pod.Labels[v1alpha1.LabelSequentialJobUID] == string(sj.UID),
		"labels %v", pod.Labels)
}

func TestFingerprintDiffersOnlyByWhatAdmissionSees(t *testing.T) {
	base := testbuilder.SequentialJob("one", "ns").Step("build").Step("test").Obj()
	want := FingerprintOf(stepJob(base, &base.Spec.Containers[0], 1, 1))
	ofSchedule := decision.ControllerReferences("Schedule", &v1alpha1.Schedule{ObjectMeta: metav1.ObjectMeta{Name: "nightly"}})
	labels, labeled := map[string]string{queueLabel: "q"}, &v1alpha1.PodTemplate{}
	labeled.Labels = labels
	for title, test := range map[string]struct {
		step                      int
		change                    func(sj *v1alpha1.SequentialJob)
		sameContent, sameMetadata bool
	}{
		"another SequentialJob":      {0, func(sj *v1alpha1.SequentialJob) { sj.Name, sj.UID, sj.Generation = "two", "other", 7 }, true, true},
		"the run of a Schedule":      {0, func(sj *v1alpha1.SequentialJob) { sj.OwnerReferences = ofSchedule }, true, true},
		"another step":               {1, func(*v1alpha1.SequentialJob) {}, false, true},
		"another namespace":          {0, func(sj *v1alpha1.SequentialJob) { sj.Namespace = "elsewhere" }, false, false},
		"another image":              {0, func(sj *v1alpha1.SequentialJob) { sj.Spec.Containers[0].Image = "other" }, false, true},
		"other options":              {0, func(sj *v1alpha1.SequentialJob) { sj.Spec.Containers[0].Step = &v1alpha1.StepOptions{Outputs: true} }, false, true},
		"a label of Jobs":            {0, func(sj *v1alpha1.SequentialJob) { sj.Spec.JobMetadata = &v1alpha1.ObjectMetadata{Labels: labels} }, true, false},
		"a label of Pods":            {0, func(sj *v1alpha1.SequentialJob) { sj.Spec.Template = labeled }, true, false},
		"a label of the application": {0, func(sj *v1alpha1.SequentialJob) { sj.Labels = map[string]string{labelAppName: "shop"} }, true, false},
		"a workspace":                {0, func(sj *v1alpha1.SequentialJob) { sj.Spec.Workspace = &v1alpha1.Workspace{} }, false, true},
	} {
		t.Run(title, func(t *testing.T) {
			sj := base.DeepCopy()
			test.change(sj)
			got := FingerprintOf(stepJob(sj, &sj.Spec.Containers[test.step], 1, 1))
			assert.Equal(t, "the same content", test.sameContent, got.Content == want.Content)
			assert.Equal(t, "the same metadata", test.sameMetadata, got.Metadata == want.Metadata)
		})
	}
}
