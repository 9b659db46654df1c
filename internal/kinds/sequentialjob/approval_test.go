package sequentialjob

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/test/assert"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

func needsApprovalBefore() testbuilder.StepOption {
	return testbuilder.WithStepOptions(func(o *v1alpha1.StepOptions) { o.RequireApproval = true })
}

func (s *testEnv) approve(user string, values ...v1alpha1.Parameter) Decision {
	s.writeApproval(Approval{SequenceApproval: *s.sj.Status.Approval, By: user, Parameters: values})
	return s.reconcile()
}

func approveAs(user string) func(*testEnv)         { return func(s *testEnv) { s.approve(user) } }
func (s *testEnv) writeApproval(approval Approval) { require.NoError(s.t, approval.Write(s.sj)) }

func TestStepWaitsForItsApproval(t *testing.T) {
	message := "step \"deploy\" waits for an approval; run `kubectl yardmaster seq approve a`"
	s := startRun(t, sequence("build").Step("deploy", needsApprovalBefore()).Step("verify")).pass(
		succeed("build"), wait(time.Hour), steps("build: Succeeded", "deploy: Pending, ApprovalRequired", "verify: Pending"), hasFinalizer(false),
		hasCondition(v1alpha1.ConditionSuspended, "True ApprovalRequired: "+message), phase(v1alpha1.PhaseSuspended, v1alpha1.ReasonApprovalRequired),
		hasCondition(v1alpha1.ConditionReconciling, "False ApprovalRequired: "+message),
		events(v1alpha1.EventJobStarted, v1alpha1.EventJobCompleted, v1alpha1.EventSuspended), approveAs("ada"),
		created("build", "deploy"), phase(v1alpha1.PhaseRunning, v1alpha1.ReasonRunning),
		events(v1alpha1.EventResumed, v1alpha1.EventJobStarted), succeed("deploy", "verify"),
	)
	assert.Equal(t, "after the run: approved by", "ada", s.stepStatus("deploy").ApprovedBy)
}

func TestDeadlineRestartsWithTheApproval(t *testing.T) {
	s := startRun(t, sequence("build").Step("deploy", needsApprovalBefore()).ActiveDeadline(60))
	s.pass(succeed("build"), wait(time.Hour), steps("build: Succeeded", "deploy: Pending, ApprovalRequired"), approveAs("ada"))
	start := s.sj.Status.StartTime
	require.True(t, start.Time.Equal(s.now), "the deadline counts from %s, want %s", start, s.now)
	s.pass(wait(2*time.Minute), steps("build: Succeeded", "deploy: Stopping, DeadlineExceeded"))
}

func TestOnlyApprovedContentRuns(t *testing.T) {
	approvals := map[string]func(*Approval){
		"valid":              nil,
		"of another object":  func(a *Approval) { a.UID = "another" },
		"of another run":     func(a *Approval) { a.Run++ },
		"of another step":    func(a *Approval) { a.Step = "build" },
		"of another content": func(a *Approval) { a.Hash = strings.Repeat("0", len(a.Hash)) },
		"without an author":  func(a *Approval) { a.By, a.Parameters = "", []v1alpha1.Parameter{{Name: "VERSION", Value: "1"}} },
		"unknown parameter":  func(a *Approval) { a.Parameters = []v1alpha1.Parameter{{Name: "OTHER"}} },
		"two values": func(a *Approval) {
			a.Parameters = []v1alpha1.Parameter{{Name: "VERSION", Value: "1"}, {Name: "VERSION", Value: "2"}}
		},
		"too long a value": func(a *Approval) {
			a.Parameters = []v1alpha1.Parameter{{Name: "VERSION", Value: strings.Repeat("a", maxParameterLength+1)}}
		},
	}
	changes := map[string]func(*v1alpha1.SequentialJob){
		"nothing": nil,
		"command": func(sj *v1alpha1.SequentialJob) { sj.Spec.Containers[1].Command = []string{"evil"} },
		"empty selector": func(sj *v1alpha1.SequentialJob) {
			sj.Spec.Containers[1].Step.PodTemplate = &runtime.RawExtension{Raw: []byte(`{"spec": {"nodeSelector": {"a": ""}}}`)}
		},
		"template": func(sj *v1alpha1.SequentialJob) {
			sj.Spec.Template = &v1alpha1.PodTemplate{}
			sj.Spec.Template.Spec.ServiceAccountName = "evil"
		},
		"variable": func(sj *v1alpha1.SequentialJob) {
			sj.Spec.Containers[1].Env = []corev1.EnvVar{{Name: "A", Value: "evil"}}
		},
		"queue": func(sj *v1alpha1.SequentialJob) {
			sj.Spec.JobMetadata = &v1alpha1.ObjectMetadata{Labels: map[string]string{"q": "a"}}
		},
		"an output": func(sj *v1alpha1.SequentialJob) { sj.Status.Steps[0].Output = "evil" },
		"options":   func(sj *v1alpha1.SequentialJob) { sj.Spec.Containers[1].Step.OnFailure = v1alpha1.OnFailureContinue },
	}
	times := []string{"before the step waits", "before the approval", "with the approval", "while the run is suspended", "before the Job exists", "before another attempt"}
	for approvalName, forge := range approvals {
		for changeName, change := range changes {
			for _, when := range times {
				t.Run(approvalName+"/"+changeName+"/"+when, func(t *testing.T) {
					sj := sequence().Step("build", testbuilder.RecordOutput()).Step("deploy", retry(1, 1, 1), needsApprovalBefore()).Obj()
					sj.Spec.Parameters = []v1alpha1.Parameter{{Name: "VERSION", Value: "0"}}
					s := newTestEnv(t, sj).pass(wait(0))
					apply := func(at string) {
						if change != nil && when == at {
							change(s.sj)
							s.sj.Generation++
						}
					}
					apply("before the step waits")
					s.succeedStep("build")
					approval := Approval{SequenceApproval: *s.sj.Status.Approval, By: "ada"}
					if forge != nil {
						forge(&approval)
					}
					apply("before the approval")
					if when == "before the approval" {
						s.reconcile()
					}
					s.createRefusals = map[string]*decision.Refusal{"deploy": {Class: decision.QuotaExceeded, Kind: "Job", Step: "deploy"}}
					s.sj.Spec.Suspend = when == "while the run is suspended"
					s.writeApproval(approval)
					apply("with the approval")
					s.reconcile()
					phase := s.stepStatus("deploy").Phase
					require.True(t, !s.sj.Spec.Suspend || phase == v1alpha1.StepPending, "the step of a suspended run is %s", phase)
					apply("while the run is suspended")
					s.sj.Spec.Suspend = false
					s.reconcile()
					apply("before the Job exists")
					s.createRefusals = nil
					s.reconcile()
					if when == "before another attempt" && len(s.createdSteps) == 2 {
						s.failStep("deploy")
						apply(when)
						s.reconcileAfter(time.Minute)
					}
					isUnchanged, isLate := change == nil || when == "before the step waits", when == "before another attempt"
					runs := 0
					if forge == nil && (isUnchanged || isLate) {
						runs++
					}
					if runs == 1 && isUnchanged && isLate {
						runs++
					}
					got := len(s.createdSteps) - 1
					require.True(t, got == runs, "the step ran %d times, want %d: %+v", got, runs, s.stepStatus("deploy"))
					waits, by := AwaitingApproval(s.sj) == "deploy", s.stepStatus("deploy").ApprovedBy
					require.True(t, waits == (runs == 0 || isLate && !isUnchanged), "the step waits: %v: %+v", waits, s.stepStatus("deploy"))
					require.True(t, !waits || by == "", "content that nobody approved has the approver %q", by)
					s.approve("bob")
					require.True(t, AwaitingApproval(s.sj) == "", "the step waits after its approval: %+v", s.stepStatus("deploy"))
				})
			}
		}
	}
}

func TestValuesOfTheApproverAreOfTheStepAndOfLaterOnes(t *testing.T) {
	sj := sequence("build").Step("deploy", retry(1, 1, 1), needsApprovalBefore()).Step("verify").Obj()
	sj.Spec.Parameters = []v1alpha1.Parameter{{Name: "VERSION", Value: "1.3"}}
	s := newTestEnv(t, sj).pass(wait(0), succeed("build"))
	s.approve("ada", v1alpha1.Parameter{Name: "VERSION", Value: "1.4"})
	s.pass(fail("deploy"), wait(time.Minute), succeed("deploy"), created("build", "deploy", "deploy", "verify"))
	for i, want := range []string{"1.3", "1.4", "1.4", "1.4"} {
		assert.Equal(t, "value of "+s.jobs[i].Name, want, s.jobs[i].Spec.Template.Spec.Containers[0].Env[0].Value)
	}
}

// A user who may change the spec can remove the requirement. The status then names no approver.
func TestStepWithoutTheRequirementHasNoApprover(t *testing.T) {
	s := startRun(t, sequence().Step("deploy", needsApprovalBefore()))
	s.createRefusals = map[string]*decision.Refusal{"deploy": {Class: decision.QuotaExceeded, Kind: "Job", Step: "deploy"}}
	s.approve("ada")
	s.createRefusals = nil
	s.pass(edit(func(spec *v1alpha1.SequentialJobSpec) { spec.Containers[0].Step.RequireApproval = false }), created("deploy"))
	assert.Equal(t, "approved by", "", s.stepStatus("deploy").ApprovedBy)
}

func TestApprovalDoesNotCountWithoutTheAdmissionPolicy(t *testing.T) {
	s := startRun(t, sequence().Step("deploy", needsApprovalBefore()))
	s.unprotected = "ValidatingAdmissionPolicy yardmaster-approvals does not exist"
	decision := s.approve("ada")
	s.pass(created(), steps("deploy: Pending, Unprotected"), phase(v1alpha1.PhaseSuspended, v1alpha1.ReasonUnprotected))
	require.True(t, decision.RequeueAfter != 0 && decision.RequeueAfter <= protectionRecheck, "the next decision is after %s", decision.RequeueAfter)
	s.unprotected = ""
	s.pass(wait(0), created("deploy"))
}
