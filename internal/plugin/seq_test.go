package plugin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/agenticsession"
	"github.com/yardmaster/yardmaster/internal/plugin/attach"
	"github.com/yardmaster/yardmaster/internal/plugin/follow"
	"github.com/yardmaster/yardmaster/internal/plugin/render"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

// failedSequence returns a SequentialJob whose step load failed a minute before testTime.
func failedSequence(name string) *v1alpha1.SequentialJob {
	sj := testbuilder.SequentialJob(name, "a").Step("extract").Step("load").Obj()
	sj.CreationTimestamp = metav1.NewTime(testTime.Add(-time.Hour))
	started, finished := metav1.NewTime(testTime.Add(-2*time.Minute)), metav1.NewTime(testTime.Add(-time.Minute))
	sj.Status = v1alpha1.SequentialJobStatus{
		Phase: v1alpha1.PhaseFailed, RunStatus: v1alpha1.RunStatus{Run: 1, Times: v1alpha1.Times{StartTime: &started, CompletionTime: &finished}},
		Steps: []v1alpha1.StepStatus{
			{Name: "extract", Phase: v1alpha1.StepSucceeded, JobAttempt: v1alpha1.JobAttempt{AttemptNumber: v1alpha1.AttemptNumber{Run: 1}}}, {Name: "load", Phase: v1alpha1.StepFailed, JobAttempt: v1alpha1.JobAttempt{AttemptNumber: v1alpha1.AttemptNumber{Run: 1}}},
		},
	}
	return sj
}

func TestRerunSequence(t *testing.T) {
	running := failedSequence("etl")
	running.Status.CompletionTime, running.Status.Phase = nil, v1alpha1.PhaseRunning
	deleted := failedSequence("etl")
	deleted.Finalizers, deleted.DeletionTimestamp = []string{v1alpha1.SequentialJobFinalizer}, new(metav1.NewTime(testTime))
	pending := failedSequence("etl")
	pending.Spec.Rerun = &v1alpha1.SequenceRerun{Rerun: v1alpha1.Rerun{ID: "2"}, From: v1alpha1.RerunFromStart}
	suspended := failedSequence("etl")
	suspended.Spec.Suspend = true
	repeated := failedSequence("etl")
	repeated.Status.RerunID = "2"
	repeated.Spec.Rerun = &v1alpha1.SequenceRerun{Rerun: v1alpha1.Rerun{ID: "2"}}
	const refused = "error: sequentialjob.yardmaster.dev/etl: cannot rerun"
	for name, row := range map[string]struct {
		sj          *v1alpha1.SequentialJob
		args        string
		from        string // in the written request; empty if nothing is written
		out, errOut string
	}{
		"from the failed step":                   {failedSequence("etl"), "--id=7", "Failed", "sequentialjob.yardmaster.dev/etl reruns from Failed: run 2, id 7\n", ""},
		"from the start":                         {failedSequence("etl"), "--id=7 --from=Start", "Start", "sequentialjob.yardmaster.dev/etl reruns from Start: run 2, id 7\n", ""},
		"from a step":                            {failedSequence("etl"), "--id=7 --from=load", "load", "sequentialjob.yardmaster.dev/etl reruns from load: run 2, id 7\n", ""},
		"a suspended SequentialJob waits":        {suspended, "--id=7", "Failed", "sequentialjob.yardmaster.dev/etl reruns from Failed: run 2, id 7\n", "sequentialjob.yardmaster.dev/etl is suspended: the rerun starts when it is resumed\n"},
		"no rerun while it runs":                 {running, "", "", "", refused + ": its run has not finished, it is Running\n"},
		"no rerun while it is being deleted":     {deleted, "", "", "", refused + ": it is being deleted\n"},
		"no rerun while another is pending":      {pending, "", "", "", refused + ": rerun \"2\" is already requested\n"},
		"no rerun with the id of the last rerun": {repeated, "--id=2", "", "", refused + ": the last rerun had the id \"2\"; choose another with --id\n"},
		"no rerun from an unknown step":          {failedSequence("etl"), "--from=transform", "", "", refused + " from step \"transform\": no step without finally has this name\n"},
		"no rerun from Failed in lower case":     {failedSequence("etl"), "--from=failed", "", "", refused + " from step \"failed\": no step without finally has this name\n"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newFakeClient(t, row.sj)
			_, out, errOut := runPluginWith(t, "seq rerun etl "+row.args, c)
			require.True(t, out == row.out && errOut == row.errOut, "stdout %q, stderr %q", out, errOut)
			after := &v1alpha1.SequentialJob{}
			require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(row.sj), after))
			if row.from == "" {
				require.Equal(t, row.sj.Spec, after.Spec)
			} else if diff := cmp.Diff(&v1alpha1.SequenceRerun{Rerun: v1alpha1.Rerun{ID: "7"}, From: row.from}, after.Spec.Rerun); diff != "" {
				t.Errorf("request (-want +got):\n%s", diff)
			}
		})
	}
}

func TestGeneratedRerunIDsAreUnique(t *testing.T) {
	one, two := newRequestID(testTime), newRequestID(testTime)
	require.True(t, one != two && strings.HasPrefix(one, "20260301-120000-") && len(one) <= 63, "ids %q and %q", one, two)
}

// waitingSequence returns a SequentialJob whose step load waits for an approval.
func waitingSequence() *v1alpha1.SequentialJob {
	sj := failedSequence("etl")
	sj.Status.Phase, sj.Status.CompletionTime = v1alpha1.PhaseSuspended, nil
	sj.Status.ObservedGeneration = sj.Generation
	sj.Status.Approval = &v1alpha1.SequenceApproval{UID: sj.UID, Run: 1, Step: "load", Hash: "abc"}
	sj.Status.Steps[1] = v1alpha1.StepStatus{Name: "load", Phase: v1alpha1.StepPending, JobAttempt: v1alpha1.JobAttempt{Explanation: v1alpha1.Explanation{Reason: v1alpha1.ReasonApprovalRequired}}}
	return sj
}

// newClientOf returns a client of a user. The fake client does not know who asks.
func newClientOf(t *testing.T, user string, objects ...client.Object) client.WithWatch {
	return interceptor.NewClient(newFakeClient(t, objects...), interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
			if review, isReview := object.(*authenticationv1.SelfSubjectReview); isReview {
				review.Status.UserInfo.Username = user
				return nil
			}
			return c.Create(ctx, object, options...)
		},
	})
}

func TestApproveShowsAndBindsTheContent(t *testing.T) {
	sj := waitingSequence()
	sj.UID, sj.Status.Approval.UID = "u", "u"
	sj.Spec.Containers[1].Image, sj.Spec.Containers[1].Command = "app:1", []string{"load", "all\x1b[31m"}
	sj.Spec.Parameters = []v1alpha1.Parameter{{Name: "VERSION", Value: "1.3"}}
	sj.Status.Parameters = sj.Spec.Parameters
	c := newClientOf(t, "ada", sj)
	code, out, errOut := runPluginWith(t, "seq approve etl -p VERSION=1.4 --hash=abc", c)
	want := "step:       load\nimage:      app:1\ncommand:    [\"load\" \"all\\x1b[31m\"]\nparameter:  VERSION=1.4\nhash:       abc\n" +
		"sequentialjob.yardmaster.dev/etl: step load of run 1 approved by ada\n"
	require.True(t, code == exitSuccess && out == want, "exit code %d, stdout %q, want %q, stderr %q", code, out, want, errOut)
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Namespace: "a", Name: "etl"}, sj))
	approval := `{"uid":"u","run":1,"step":"load","hash":"abc","parameters":[{"name":"VERSION","value":"1.4"}]}`
	got := sj.Annotations
	require.True(t, got[v1alpha1.AnnotationApproval] == approval && got[v1alpha1.AnnotationApprovedBy] == "ada", "annotations %s", got)
}

func TestApproveWritesNothingIfTheStepDoesNotWait(t *testing.T) {
	changed := waitingSequence()
	changed.Generation = changed.Status.ObservedGeneration + 1
	for args, test := range map[string]struct {
		sj   *v1alpha1.SequentialJob
		want string
	}{
		"seq approve etl":                {failedSequence("etl"), "no step waits for an approval"},
		"seq approve etl --step=extract": {waitingSequence(), `step "load" waits for an approval`},
		"seq approve etl --hash=def":     {waitingSequence(), "its content has changed: its hash is abc"},
		"seq approve etl --step=load":    {changed, "the operator has not observed the last change"},
		"seq approve etl -p DAY=1":       {waitingSequence(), `spec.parameters has no "DAY"`},
	} {
		code, _, errOut := runPluginWith(t, args, newClientOf(t, "ada", test.sj))
		require.True(t, code == exitError && strings.Contains(errOut, test.want), "%s: exit code %d, stderr %q", args, code, errOut)
	}
}

func TestRerunSetsParameters(t *testing.T) {
	sj := failedSequence("etl")
	sj.Spec.Parameters = []v1alpha1.Parameter{{Name: "DATE", Value: "2026-01-01"}}
	c := newFakeClient(t, sj)
	code, _, errOut := runPluginWith(t, "seq rerun etl -p DAY=1", c)
	require.True(t, code == exitError && strings.Contains(errOut, `spec.parameters has no "DAY"`), "exit code %d, stderr %q", code, errOut)
	code, _, errOut = runPluginWith(t, "seq rerun etl -p DATE=2026-01-02", c)
	require.True(t, code == exitSuccess && strings.Contains(errOut, "other values of the parameters DATE"), "exit code %d, stderr %q", code, errOut)
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(sj), sj))
	got := sj.Spec.Rerun.Parameters
	require.True(t, len(got) == 1 && got[0].Value == "2026-01-02", "parameters %+v", got)
}

func suspendField(object client.Object) *bool {
	switch object := object.(type) {
	case *v1alpha1.SequentialJob:
		return &object.Spec.Suspend
	case *v1alpha1.Queue:
		return &object.Spec.Suspend
	case *v1alpha1.Schedule:
		return &object.Spec.Suspend
	default:
		return &object.(*v1alpha1.WorkerPool).Spec.Autoscaling.Suspend
	}
}

// Each kind that can be suspended, by each command in each state, alone and after an object that does not exist.
func TestSuspendAndResume(t *testing.T) {
	autoscaled := manualPool("mailers", 0, func(wp *v1alpha1.WorkerPool) {
		wp.Spec.Replicas, wp.Spec.Autoscaling = nil, &v1alpha1.Autoscaling{MaxReplicas: 3}
	})
	// The messages of suspend and of resume, each for an object that is not suspended, and for one that is.
	messages := [4]string{"suspended", "is already suspended", "is not suspended", "resumed"}
	ofScaling := [4]string{"does not scale", "is already suspended, or is not autoscaled", "is not suspended", "scales again"}
	for _, kind := range []struct {
		object                client.Object
		name, suspend, resume string
		messages              [4]string
	}{
		{testbuilder.SequentialJob("etl", "a").Step("load").Obj(), "sequentialjob.yardmaster.dev/etl", "seq suspend", "seq resume", messages},
		{natsQueue("mail"), "queue.yardmaster.dev/mail", "queue suspend", "queue resume", messages},
		{nightlySchedule(), "schedule.yardmaster.dev/nightly", "schedule suspend", "schedule resume", messages},
		{autoscaled, "workerpool.yardmaster.dev/mailers", "pool suspend-scaling", "pool resume-scaling", ofScaling},
	} {
		for i, message := range kind.messages {
			command, wasSuspended := []string{kind.suspend, kind.resume}[i/2], i%2 == 1
			for names, wantCode := range map[string]int{kind.object.GetName(): exitSuccess, "no-such " + kind.object.GetName(): exitError} {
				args := command + " " + names
				t.Run(args, func(t *testing.T) {
					*suspendField(kind.object) = wasSuspended
					c := newFakeClient(t, kind.object.DeepCopyObject().(client.Object))
					code, out, errOut := runPluginWith(t, args, c)
					isMissing := strings.Contains(errOut, `"no-such" not found`)
					require.True(t, code == wantCode && out == kind.name+" "+message+"\n" && isMissing == (wantCode == exitError), outcome, code, out, errOut)
					after := kind.object.DeepCopyObject().(client.Object)
					err := c.Get(t.Context(), client.ObjectKeyFromObject(after), after)
					require.True(t, err == nil && *suspendField(after) == (command == kind.suspend), "suspended: %t, %v", *suspendField(after), err)
				})
			}
		}
	}
	for args, want := range map[string]string{
		"seq suspend over":            "sequentialjob.yardmaster.dev/over suspended; its run has finished, and the next run will wait until it is resumed",
		"pool suspend-scaling manual": "workerpool.yardmaster.dev/manual is already suspended, or is not autoscaled",
	} {
		_, out, errOut := runPlugin(t, args, failedSequence("over"), manualPool("manual", 3))
		require.True(t, out == want+"\n", "%s: stdout %q, stderr %q", args, out, errOut)
	}
}

func TestDescribeShowsWhyPodsDoNotRunAndTheirEvents(t *testing.T) {
	sj := testbuilder.SequentialJob("etl", "a").Step("load").Obj()
	sj.UID = "1"
	pod := func(name, uid string, status corev1.PodStatus) *corev1.Pod {
		labels := map[string]string{v1alpha1.LabelSequentialJobUID: uid, v1alpha1.LabelStep: "load"}
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "a", UID: types.UID(name), Labels: labels}, Status: status}
	}
	container := func(state corev1.ContainerState) []corev1.ContainerStatus {
		return []corev1.ContainerStatus{{Name: "load", State: state}}
	}
	failed := pod("etl-failed", "1", corev1.PodStatus{Phase: corev1.PodFailed, ContainerStatuses: container(corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "OOMKilled"}})})
	event := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: "e", Namespace: "a"}, InvolvedObject: corev1.ObjectReference{Kind: "Pod", Name: failed.Name, UID: failed.UID},
		Type: "Warning", Reason: "BackOff", Message: "back-off \x1b[31m", LastTimestamp: metav1.NewTime(testTime),
	}
	foreign := pod("foreign", "2", corev1.PodStatus{Phase: corev1.PodRunning})
	code, out, errOut := runPluginWith(t, "seq describe etl", newFakeClient(t, sj, failed, foreign, event,
		pod("etl-pull", "1", corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: container(corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"}})}),
		pod("etl-pending", "1", corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable"}}}),
		pod("etl-new", "1", corev1.PodStatus{}), pod("etl-runs", "1", corev1.PodStatus{Phase: corev1.PodRunning})))
	require.True(t, code == 0 && errOut == "", "exit code %d, stderr %q", code, errOut)
	for _, want := range []string{"etl-failed", "OOMKilled, exit code 137", "ImagePullBackOff", "Unschedulable", "Pending", "Running", "Pod/etl-failed", "back-off \uFFFD[31m"} {
		require.Contains(t, out, want)
	}
	require.True(t, !strings.Contains(out, "foreign"), "the output has the Pod of another sequence:\n%s", out)
}

type sequenceUpdate = follow.ObjectUpdate[*v1alpha1.SequentialJob]

func newTestEnvironment() *environment {
	return &environment{now: func() time.Time { return testTime }}
}

func runningSequence(name string) *v1alpha1.SequentialJob {
	sj := failedSequence(name)
	sj.Status.Phase, sj.Status.CompletionTime = v1alpha1.PhaseRunning, nil
	sj.Status.Steps[1].Phase = v1alpha1.StepRunning
	return sj
}

func completedSequence(name string) *v1alpha1.SequentialJob {
	sj := failedSequence(name)
	sj.Status.Phase = v1alpha1.PhaseCompleted
	sj.Status.Steps[1].Phase = v1alpha1.StepSucceeded
	return sj
}

func wantFinished(t *testing.T, view interface{ isFinished() (bool, error) }, want bool, wantErr error) {
	t.Helper()
	finished, err := view.isFinished()
	require.True(t, finished == want && fmt.Sprint(err) == fmt.Sprint(wantErr), "finished %t, %v; want %t, %v", finished, err, want, wantErr)
}

func TestWatchingOneSequenceEnds(t *testing.T) {
	rerun := failedSequence("etl")
	rerun.Spec.Rerun = &v1alpha1.SequenceRerun{Rerun: v1alpha1.Rerun{ID: "2"}, From: v1alpha1.RerunFromStart}
	impossible := failedSequence("etl")
	impossible.Spec.Rerun = &v1alpha1.SequenceRerun{Rerun: v1alpha1.Rerun{ID: "2"}, From: "no-such-step"}
	requested := failedSequence("etl")
	requested.Generation, requested.Spec.Rerun = 2, rerun.Spec.Rerun
	another := completedSequence("etl")
	another.UID = "another"
	for name, row := range map[string]struct {
		latest  *v1alpha1.SequentialJob
		updates []sequenceUpdate
		want    bool
		wantErr error
	}{
		"does not end while it runs":                        {runningSequence("etl"), []sequenceUpdate{{Object: runningSequence("etl")}}, false, nil},
		"ends when it completes":                            {runningSequence("etl"), []sequenceUpdate{{Object: completedSequence("etl")}}, true, nil},
		"ends when it fails":                                {runningSequence("etl"), []sequenceUpdate{{Object: failedSequence("etl")}}, true, errUnsuccessful},
		"does not end while a rerun is pending":             {rerun, []sequenceUpdate{{Object: rerun}}, false, nil},
		"ends when the requested rerun is invalid":          {impossible, []sequenceUpdate{{Object: impossible}}, true, errUnsuccessful},
		"does not end for a state before the request":       {requested, []sequenceUpdate{{Object: failedSequence("etl")}}, false, nil},
		"ends when it is deleted after it has completed":    {runningSequence("etl"), []sequenceUpdate{{Object: completedSequence("etl")}, {Object: completedSequence("etl"), Deleted: true}}, true, nil},
		"ends when it is deleted before its end":            {runningSequence("etl"), []sequenceUpdate{{Object: runningSequence("etl"), Deleted: true}}, true, errors.New("sequentialjob.yardmaster.dev/etl was deleted")},
		"ends when another object gets its name":            {runningSequence("etl"), []sequenceUpdate{{Object: runningSequence("etl")}, {Object: another}}, true, errors.New("sequentialjob.yardmaster.dev/etl was deleted")},
		"ends when it was deleted before the watch started": {runningSequence("etl"), nil, true, errors.New("sequentialjob.yardmaster.dev/etl was deleted")},
	} {
		t.Run(name, func(t *testing.T) {
			v := &objectView[*v1alpha1.SequentialJob]{environment: newTestEnvironment(), kind: sequentialJobKind, latest: row.latest}
			for _, s := range row.updates {
				v.applyUpdate(s)
			}
			wantFinished(t, v, row.want, row.wantErr)
		})
	}
}

func TestWatchingSeveralSequencesEnds(t *testing.T) {
	deleted := func(sj *v1alpha1.SequentialJob) sequenceUpdate { return sequenceUpdate{Object: sj, Deleted: true} }
	for name, row := range map[string]struct {
		endless bool
		updates []sequenceUpdate
		want    bool
		wantErr error
	}{
		"never ends if it is endless":                 {true, []sequenceUpdate{{Object: completedSequence("a")}}, false, nil},
		"does not end while one runs":                 {false, []sequenceUpdate{{Object: completedSequence("a")}, {Object: runningSequence("b")}}, false, nil},
		"ends when all have completed":                {false, []sequenceUpdate{{Object: completedSequence("a")}, {Object: completedSequence("b")}}, true, nil},
		"ends when one has failed":                    {false, []sequenceUpdate{{Object: completedSequence("a")}, {Object: failedSequence("b")}}, true, errUnsuccessful},
		"ends when one has failed and was deleted":    {false, []sequenceUpdate{{Object: failedSequence("a")}, deleted(failedSequence("a")), {Object: completedSequence("b")}}, true, errUnsuccessful},
		"ends when one has completed and was deleted": {false, []sequenceUpdate{{Object: completedSequence("a")}, deleted(completedSequence("a"))}, true, nil},
		"ends when one is deleted before its end":     {false, []sequenceUpdate{{Object: runningSequence("a")}, deleted(runningSequence("a"))}, true, errUnsuccessful},
		"ends when there is no SequentialJob":         {false, nil, true, errors.New("no SequentialJob to wait for")},
	} {
		t.Run(name, func(t *testing.T) {
			v := newListView(newTestEnvironment(), sequentialJobKind)
			v.endless = row.endless
			for _, s := range row.updates {
				v.applyUpdate(s)
			}
			wantFinished(t, v, row.want, row.wantErr)
		})
	}
}

func TestEachChangeIsPrintedOnce(t *testing.T) {
	one := &objectView[*v1alpha1.SequentialJob]{environment: newTestEnvironment(), kind: sequentialJobKind, latest: runningSequence("etl")}
	many := newListView(newTestEnvironment(), sequentialJobKind)
	many.showNamespaces = true
	var fromObject, fromList []string
	for _, s := range []sequenceUpdate{{Object: runningSequence("etl")}, {Object: runningSequence("etl")}, {Object: failedSequence("etl")}, {Object: failedSequence("etl"), Deleted: true}} {
		fromObject = append(fromObject, texts(one.applyUpdate(s))...)
		fromList = append(fromList, texts(many.applyUpdate(s))...)
	}
	want := []string{"step extract: Succeeded", "step load: Running", "Running, 1/2 steps", "step load: Failed", "Failed, 1/2 steps"}
	require.Equal(t, want, fromObject)
	for i := range want {
		want[i] = "a/etl " + want[i]
	}
	require.Equal(t, append(want, "a/etl was deleted"), fromList)
}

func TestSequencesThatNeedAttentionAreFirst(t *testing.T) {
	v := newListView(newTestEnvironment(), sequentialJobKind)
	for _, sj := range []*v1alpha1.SequentialJob{completedSequence("backup"), failedSequence("etl")} {
		v.applyUpdate(sequenceUpdate{Object: sj})
	}
	lines := v.renderLines(0)
	require.True(t, strings.HasPrefix(lines[1], "etl") && strings.HasPrefix(lines[2], "backup"), "lines:\n%s", strings.Join(lines, "\n"))
}

func texts(changes []render.Change) []string {
	var all []string
	for _, change := range changes {
		all = append(all, change.Text)
	}
	return all
}

func agenticSession(name string, phase v1alpha1.SessionPhase, changes ...func(*v1alpha1.AgenticSession)) *v1alpha1.AgenticSession {
	s := &v1alpha1.AgenticSession{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "a", UID: "1", Generation: 1}}
	s.Spec = v1alpha1.AgenticSessionSpec{Prompt: "Tidy up.", Limits: v1alpha1.SessionLimits{RunLimits: v1alpha1.RunLimits{Timeout: v1alpha1.NewDuration(10 * time.Minute)}}}
	s.Status = v1alpha1.AgenticSessionStatus{Phase: phase, ObservedStatus: v1alpha1.ObservedStatus{ObservedGeneration: 1}, RunStatus: v1alpha1.RunStatus{Run: 1}, Attempt: v1alpha1.SessionAttempt{JobAttempt: v1alpha1.JobAttempt{AttemptNumber: v1alpha1.AttemptNumber{Run: 1, Attempt: 1}}}}
	for _, change := range changes {
		change(s)
	}
	return s
}

func stopByUser(s *v1alpha1.AgenticSession) {
	s.Spec.Suspend, s.Status.StoppedReason = true, v1alpha1.StopUser
}

func requestRun(s *v1alpha1.AgenticSession)        { s.Spec.Rerun = &v1alpha1.Rerun{ID: "2"} }
func stopForInactivity(s *v1alpha1.AgenticSession) { s.Status.StoppedReason = v1alpha1.StopInactivity }

func addResult(s *v1alpha1.AgenticSession) {
	s.Status.TotalCostUSD = new(v1alpha1.Number("0.12"))
	s.Status.Result = &v1alpha1.SessionResult{
		AttemptNumber: v1alpha1.AttemptNumber{Run: 1, Attempt: 1}, Summary: "Tidied up.", Usage: &apiextensionsv1.JSON{Raw: []byte(`{"tokens":7}`)},
	}
	s.Status.Attempts = []v1alpha1.SessionAttempt{{JobAttempt: v1alpha1.JobAttempt{AttemptNumber: v1alpha1.AttemptNumber{Run: 1, Attempt: 1}}, Outcome: v1alpha1.RunCompleted, CostUSD: s.Status.TotalCostUSD}}
}

func TestStopSessions(t *testing.T) {
	const tidy = "agenticsession.yardmaster.dev/tidy "
	for title, row := range map[string]struct {
		session     *v1alpha1.AgenticSession
		args        string
		code        int
		out, errOut string
	}{
		"a running session":                {agenticSession("tidy", v1alpha1.SessionRunning), "tidy", exitSuccess, tidy + "stop requested\n", ""},
		"a stopped session":                {agenticSession("tidy", v1alpha1.SessionStopped, stopByUser), "tidy", exitSuccess, tidy + "stop is already requested\n", ""},
		"a session stopped for inactivity": {agenticSession("tidy", v1alpha1.SessionStopped, stopForInactivity), "tidy", exitSuccess, tidy + "stop requested\n", ""},
		"a finished session":               {agenticSession("tidy", v1alpha1.SessionFailed), "tidy", exitSuccess, tidy + "stop requested; its run has finished, and the next run will not start\n", ""},
		"the others if one does not exist": {agenticSession("tidy", v1alpha1.SessionRunning), "no-such tidy", exitError, tidy + "stop requested\n", "error: agenticsessions.yardmaster.dev \"no-such\" not found\n"},
		"a session that has not run yet":   {agenticSession("tidy", v1alpha1.SessionPending), "tidy", exitSuccess, tidy + "stop requested\n", ""},
	} {
		t.Run(title, func(t *testing.T) {
			c := newFakeClient(t, row.session)
			code, out, errOut := runPluginWith(t, "session stop "+row.args, c)
			require.True(t, code == row.code && out == row.out && errOut == row.errOut, outcome, code, out, errOut)
			after := readSession(t, c)
			require.True(t, after.Spec.Suspend, "it is not suspended")
		})
	}
}

func readSession(t *testing.T, c client.Client) *v1alpha1.AgenticSession {
	t.Helper()
	s := &v1alpha1.AgenticSession{}
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Namespace: "a", Name: "tidy"}, s))
	return s
}

func TestRestartSession(t *testing.T) {
	const tidy, refused = "agenticsession.yardmaster.dev/tidy ", "error: agenticsession.yardmaster.dev/tidy: cannot restart: "
	ended := func(changes ...func(*v1alpha1.AgenticSession)) *v1alpha1.AgenticSession {
		return agenticSession("tidy", v1alpha1.SessionCompleted, changes...)
	}
	for title, row := range map[string]struct {
		session     *v1alpha1.AgenticSession
		run         int32 // the requested run; 0 if nothing is written
		out, errOut string
	}{
		"a session stopped by its user continues":                                                  {agenticSession("tidy", v1alpha1.SessionStopped, stopByUser), 1, tidy + "continues run 1\n", ""},
		"a session being stopped by its user continues":                                            {agenticSession("tidy", v1alpha1.SessionStopping, stopByUser), 1, tidy + "continues run 1\n", ""},
		"an inactive session starts its next run":                                                  {agenticSession("tidy", v1alpha1.SessionStopped, stopForInactivity), 2, tidy + "starts run 2\n", ""},
		"a completed session starts its next run":                                                  {ended(), 2, tidy + "starts run 2\n", ""},
		"a failed session starts its next run":                                                     {agenticSession("tidy", v1alpha1.SessionFailed), 2, tidy + "starts run 2\n", ""},
		"a completed session with a stop request starts its next run":                              {ended(stopByUser), 2, tidy + "starts run 2\n", ""},
		"a completed session whose next run is already requested starts it despite a stop request": {ended(stopByUser, requestRun), 2, tidy + "starts run 2\n", ""},
		"a running session is not restarted":                                                       {agenticSession("tidy", v1alpha1.SessionRunning), 0, "", refused + "it is Running\n"},
		"a session without a status is not restarted":                                              {agenticSession("tidy", ""), 0, "", refused + "it is Pending\n"},
		"a session whose next run is requested is not restarted":                                   {ended(requestRun), 0, "", refused + "run 2 is already requested\n"},
		"a session without time left is not restarted":                                             {ended(func(s *v1alpha1.AgenticSession) { s.Status.ActiveDuration.Duration.Duration = 10 * time.Minute }), 0, "", refused + "it has used 10m0s of 10m0s; raise spec.limits.timeout first\n"},
		"a session without a time limit starts its next run": {ended(func(s *v1alpha1.AgenticSession) {
			s.Status.ActiveDuration.Duration.Duration, s.Spec.Limits.Timeout = 10*time.Minute, v1alpha1.NewDuration(0)
		}), 2, tidy + "starts run 2\n", ""},
		"a session that is being deleted is not restarted": {ended(func(s *v1alpha1.AgenticSession) {
			s.DeletionTimestamp, s.Finalizers = new(metav1.NewTime(testTime)), []string{"a/b"}
		}), 0, "", refused + "it is being deleted\n"},
	} {
		t.Run(title, func(t *testing.T) {
			c := newFakeClient(t, row.session)
			_, out, errOut := runPluginWith(t, "session restart tidy", c)
			require.True(t, out == row.out && errOut == row.errOut, "stdout %q, stderr %q", out, errOut)
			after := readSession(t, c)
			if row.run == 0 {
				require.Equal(t, row.session.Spec, after.Spec)
			} else if agenticsession.IsRerunRequested(after, &after.Status) != (row.run == 2) || after.Spec.Suspend {
				t.Errorf("rerun %v is requested, suspend %t", after.Spec.Rerun, after.Spec.Suspend)
			}
		})
	}
}

func TestSessionResult(t *testing.T) {
	unreadable := func(s *v1alpha1.AgenticSession) {
		s.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionRunnerReporting, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonResultMalformed, Message: "the result is cut off at 4096 bytes"}}
	}
	const failure = "error: agenticsession.yardmaster.dev/tidy: "
	for title, row := range map[string]struct {
		session           *v1alpha1.AgenticSession
		args, out, errOut string
	}{
		"as text":       {agenticSession("tidy", v1alpha1.SessionCompleted, addResult), "", "attempt   run 1, attempt 1\ncost      $0.12\nusage     {\"tokens\":7}\n\nTidied up.\n", ""},
		"as YAML":       {agenticSession("tidy", v1alpha1.SessionCompleted, addResult), " -o yaml", "attempt: 1\nrun: 1\nsummary: Tidied up.\nusage:\n  tokens: 7\n", ""},
		"no result yet": {agenticSession("tidy", v1alpha1.SessionRunning), "", "", failure + "no result yet: the session is Running\n"},
		"an unreadable result after a readable one": {
			agenticSession("tidy", v1alpha1.SessionCompleted, addResult, unreadable), "", "", failure + "the result cannot be read: the result is cut off at 4096 bytes\n",
		},
	} {
		t.Run(title, func(t *testing.T) {
			_, out, errOut := runPlugin(t, "session result tidy"+row.args, row.session)
			diff := cmp.Diff(row.out, out)
			require.True(t, diff == "" && errOut == row.errOut, "stderr %q, stdout (-want +got):\n%s", errOut, diff)
		})
	}
}

type sessionUpdate = follow.ObjectUpdate[*v1alpha1.AgenticSession]

func TestWatchingOneSessionEnds(t *testing.T) {
	of := func(phase v1alpha1.SessionPhase, changes ...func(*v1alpha1.AgenticSession)) *v1alpha1.AgenticSession {
		return agenticSession("tidy", phase, changes...)
	}
	requested := of(v1alpha1.SessionCompleted, func(s *v1alpha1.AgenticSession) { s.Generation = 2; requestRun(s) })
	for title, row := range map[string]struct {
		latest  *v1alpha1.AgenticSession
		updates []sessionUpdate
		want    bool
		wantErr error
	}{
		"does not end while it runs":                        {of(v1alpha1.SessionRunning), []sessionUpdate{{Object: of(v1alpha1.SessionRunning)}}, false, nil},
		"ends when it completes":                            {of(v1alpha1.SessionRunning), []sessionUpdate{{Object: of(v1alpha1.SessionCompleted)}}, true, nil},
		"ends when it fails":                                {of(v1alpha1.SessionRunning), []sessionUpdate{{Object: of(v1alpha1.SessionFailed)}}, true, errUnsuccessful},
		"ends when it is stopped":                           {of(v1alpha1.SessionStopping), []sessionUpdate{{Object: of(v1alpha1.SessionStopped)}}, true, errUnsuccessful},
		"does not end before the requested run is observed": {requested, []sessionUpdate{{Object: requested}}, false, nil},
		"does not end for a state before the request":       {requested, []sessionUpdate{{Object: of(v1alpha1.SessionCompleted)}}, false, nil},
	} {
		t.Run(title, func(t *testing.T) {
			v := &objectView[*v1alpha1.AgenticSession]{environment: newTestEnvironment(), kind: agenticSessionKind, latest: row.latest}
			for _, s := range row.updates {
				v.applyUpdate(s)
			}
			wantFinished(t, v, row.want, row.wantErr)
		})
	}
}

func TestAttachExplainsWhyASessionAcceptsNoMessages(t *testing.T) {
	interactive := func(s *v1alpha1.AgenticSession) { s.Spec.Interactive = true }
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "pair-r1-a1-x", Namespace: "a", Labels: map[string]string{agenticsession.LabelSessionUID: "1"}}}
	for want, s := range map[string]*v1alpha1.AgenticSession{
		"is not interactive":                              agenticSession("pair", v1alpha1.SessionRunning),
		"is Pending and has no Pod that accepts messages": agenticSession("pair", v1alpha1.SessionPending, interactive),
	} {
		code, out, errOut := runPluginArgs(t, []string{"session", "attach", "pair"}, newFakeClient(t, s, pod))
		require.True(t, code == exitError && out == "" && strings.Contains(errOut, want), "exit code %d, output %q, stderr %q", code, out, errOut)
	}
}

func TestCtrlCWhileAttachedDoesNotHideALaterError(t *testing.T) {
	ctx, stop := signal.NotifyContext(t.Context(), os.Interrupt) // as main does
	defer stop()
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if message, _ := io.ReadAll(r.Body); string(message) == "interrupted" {
			_ = syscall.Kill(os.Getpid(), syscall.SIGINT)
			<-r.Context().Done()
		}
		panic(http.ErrAbortHandler)
	}))
	defer server.Close()
	err := talk(ctx, &attach.Session{URL: server.URL, In: strings.NewReader("interrupted\nlost\n"), Out: io.Discard, ErrOut: io.Discard})
	require.ErrorContains(t, err, "sending the message")
	require.NoError(t, ctx.Err())
}

func TestOnlyAReadyPodOfAnInteractiveSessionAcceptsMessages(t *testing.T) {
	pod := &corev1.Pod{
		Spec:   corev1.PodSpec{Containers: []corev1.Container{{Ports: []corev1.ContainerPort{{Name: "other", ContainerPort: 1}, {Name: "session", ContainerPort: 8080}}}}},
		Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
	}
	require.Equal(t, 8080, agenticsession.InteractivePort(pod))
	pod.Status.Conditions[0].Status = corev1.ConditionFalse
	require.Equal(t, 0, agenticsession.InteractivePort(pod))
}
