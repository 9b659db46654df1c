package render

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/yardmaster/yardmaster/internal/kinds/jobreport"
	"github.com/yardmaster/yardmaster/internal/plugin/terminal"
	"github.com/yardmaster/yardmaster/test/require"
)

var explanationTime = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func unschedulablePod(name string) corev1.Pod {
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}
	pod.Status.Conditions = []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: "0/5 nodes have nvidia.com/gpu",
	}}
	return pod
}

func podWithContainer(status corev1.ContainerStatus) corev1.Pod {
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "p"}}
	status.Name = "main"
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{status}
	return pod
}

func warning(uid, reason, message string) corev1.Event {
	return corev1.Event{Type: corev1.EventTypeWarning, Reason: reason, Message: message, InvolvedObject: corev1.ObjectReference{UID: types.UID(uid)}}
}

// terminated returns a container that ended a minute ago.
func terminated(code int32, reason, message string) corev1.ContainerState {
	return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		ExitCode: code, Reason: reason, Message: message, FinishedAt: metav1.NewTime(explanationTime.Add(-time.Minute)),
	}}
}

var runningState = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(explanationTime.Add(-time.Hour))}}

// Each kind of stuck Job has a cause and a command that shows more about it.
func TestAnExplanationNamesTheCauseAndACommand(t *testing.T) {
	waiting := func(reason, message string) corev1.Pod {
		return podWithContainer(corev1.ContainerStatus{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}})
	}
	evicted := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "team-a"}, Status: corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted", Message: "The node was low on resource: memory."}}
	terminating := corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "team-a", DeletionTimestamp: new(metav1.NewTime(explanationTime.Add(time.Hour))), DeletionGracePeriodSeconds: new(int64(3600))},
		Spec:       corev1.PodSpec{NodeName: "node-3"},
	}
	gated := unschedulablePod("p")
	gated.Status.Conditions[0].Reason, gated.Status.Conditions[0].Message = corev1.PodReasonSchedulingGated, "Scheduling is blocked due to non-empty scheduling gates"
	beside := func(state corev1.ContainerState, other string) corev1.Pod {
		pod := podWithContainer(corev1.ContainerStatus{State: state})
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{Name: other, Image: "proxy:1", State: runningState, Ready: true})
		return pod
	}
	initializing := podWithContainer(corev1.ContainerStatus{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "PodInitializing"}}})
	initializing.Spec.InitContainers = []corev1.Container{{Name: "download"}}
	initializing.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "download", State: runningState}}
	sidecar := podWithContainer(corev1.ContainerStatus{State: runningState, Ready: true})
	sidecar.Spec.InitContainers = []corev1.Container{{Name: "proxy", RestartPolicy: new(corev1.ContainerRestartPolicyAlways)}}
	sidecar.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "proxy", State: runningState}}
	backOff := func(name string) corev1.Pod {
		pod := waiting("CrashLoopBackOff", "back-off 20s restarting failed container=main pod="+name+"_team-a(f104c646-d8b7)")
		pod.Name = name
		pod.Status.ContainerStatuses[0].LastTerminationState = terminated(137, "OOMKilled", "")
		return pod
	}
	refused := func(message string) []corev1.Event {
		return []corev1.Event{warning("job", "FailedCreate", `Error creating: pods "etl-x7k2p" is forbidden: `+message), warning("job", "FailedCreate", `Error creating: pods "etl-9q4zt" is forbidden: `+message)}
	}
	for name, row := range map[string]struct {
		pods    []corev1.Pod
		events  []corev1.Event
		cause   string
		command string
	}{
		"Pods that fit no node":         {[]corev1.Pod{unschedulablePod("a"), unschedulablePod("b")}, nil, "Unschedulable: 2 Pods without a node: 0/5 nodes have nvidia.com/gpu", "kubectl describe pod a -n team-a"},
		"a Pod with a scheduling gate":  {[]corev1.Pod{gated}, nil, "SchedulingGated: 1 Pod without a node: Scheduling is blocked due to non-empty scheduling gates", "kubectl describe pod p -n team-a"},
		"an image that is not there":    {[]corev1.Pod{waiting("ImagePullBackOff", "not found")}, nil, "ImagePullBackOff: 1 Pod with container main, which waits: not found", "kubectl describe pod p -n team-a"},
		"a missing Secret":              {[]corev1.Pod{waiting("CreateContainerConfigError", `secret "db" not found`)}, nil, `CreateContainerConfigError: 1 Pod with container main, which waits: secret "db" not found`, "kubectl describe pod p -n team-a"},
		"a command that does not exist": {[]corev1.Pod{podWithContainer(corev1.ContainerStatus{State: terminated(128, "StartError", `exec: "nope": not found`)})}, nil, `StartError: 1 Pod with container main, which exited with code 128 (StartError): exec: "nope": not found (60s ago)`, "kubectl logs p -n team-a -c main --tail=50"},
		"containers that crash": {
			[]corev1.Pod{backOff("etl-x7k2p"), backOff("etl-9q4zt")},
			nil,
			"CrashLoopBackOff: 2 Pods with container main, which waits: back-off 20s restarting failed container=main, last exited with code 137 (OOMKilled) (60s ago)", "kubectl logs etl-x7k2p -n team-a -c main --tail=50 --previous",
		},
		"a container that failed, with its message":  {[]corev1.Pod{podWithContainer(corev1.ContainerStatus{State: terminated(3, "Error", "no rows\nin orders")})}, nil, "Error: 1 Pod with container main, which exited with code 3: no rows in orders (60s ago)", "kubectl logs p -n team-a -c main --tail=50"},
		"an injected sidecar that runs on":           {[]corev1.Pod{beside(terminated(0, "Completed", ""), "proxy")}, nil, "SidecarRunsOn: 1 Pod with container main, which ended with exit code 0, while container proxy runs on (60s ago)", "kubectl logs p -n team-a -c proxy --tail=50"},
		"an injected sidecar that hides a failure":   {[]corev1.Pod{beside(terminated(1, "Error", ""), "proxy")}, nil, "SidecarRunsOn: 1 Pod with container main, which ended with exit code 1, while container proxy runs on (60s ago)", "kubectl logs p -n team-a -c proxy --tail=50"},
		"one of the Job's containers runs on":        {[]corev1.Pod{beside(terminated(0, "Completed", ""), "helper")}, nil, "ContainerEnded: 1 Pod with container main, which ended with exit code 0, while container helper runs on (60s ago)", "kubectl logs p -n team-a -c helper --tail=50"},
		"an init container at work":                  {[]corev1.Pod{initializing}, nil, "Initializing: 1 Pod with init container download at work (60m ago)", "kubectl logs p -n team-a -c download --tail=50"},
		"a container that is not ready":              {[]corev1.Pod{podWithContainer(corev1.ContainerStatus{State: runningState})}, nil, "NotReady: 1 Pod with container main, which runs but is not ready (60m ago)", "kubectl describe pod p -n team-a"},
		"an evicted Pod":                             {[]corev1.Pod{evicted}, nil, "Evicted: 1 Pod failed: The node was low on resource: memory.", "kubectl describe pod p -n team-a"},
		"a Pod that does not terminate":              {[]corev1.Pod{terminating}, nil, "Terminating: 1 Pod on node node-3 (0s ago)", "kubectl get node node-3"},
		"an exhausted quota, several times":          {nil, refused("exceeded quota: team-a, requested: pods=1, used: pods=0, limited: pods=0"), "FailedCreate: pods is forbidden: exceeded quota: team-a, requested: pods=1, used: pods=0, limited: pods=0", "kubectl describe resourcequota -n team-a"},
		"a quota that needs requests":                {nil, refused("failed quota: team-a: must specify cpu"), "FailedCreate: pods is forbidden: failed quota: team-a: must specify cpu", "kubectl describe resourcequota -n team-a"},
		"a LimitRange":                               {nil, refused("maximum memory usage per Container is 1Gi, but limit is 2Gi"), "FailedCreate: pods is forbidden: maximum memory usage per Container is 1Gi, but limit is 2Gi", "kubectl describe limitrange -n team-a"},
		"PodSecurity":                                {nil, refused(`violates PodSecurity "restricted:latest"`), `FailedCreate: pods is forbidden: violates PodSecurity "restricted:latest"`, "kubectl describe namespace team-a"},
		"a missing ServiceAccount":                   {nil, refused(`error looking up service account team-a/nope: serviceaccount "nope" not found`), `FailedCreate: pods is forbidden: error looking up service account team-a/nope: serviceaccount "nope" not found`, "kubectl get serviceaccounts -n team-a"},
		"another admission policy":                   {nil, refused("admission webhook denied the request"), "FailedCreate: pods is forbidden: admission webhook denied the request", "kubectl describe job etl -n team-a"},
		"an event that repeats a condition":          {[]corev1.Pod{unschedulablePod("a")}, []corev1.Event{warning("a", "FailedScheduling", "0/5 nodes")}, "Unschedulable: 1 Pod without a node: 0/5 nodes have nvidia.com/gpu", "kubectl describe pod a -n team-a"},
		"a Pod that starts":                          {[]corev1.Pod{waiting("ContainerCreating", "")}, nil, "", "kubectl describe job etl -n team-a"},
		"a Pod that works beside its native sidecar": {[]corev1.Pod{sidecar}, nil, "", "kubectl describe job etl -n team-a"},
		"an event that is no warning":                {nil, []corev1.Event{{Type: corev1.EventTypeNormal, Reason: "SuccessfulCreate", Message: "x"}}, "", "kubectl describe job etl -n team-a"},
	} {
		t.Run(name, func(t *testing.T) {
			job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "etl", Namespace: "team-a"}}
			job.Spec.Template.Spec.Containers = []corev1.Container{{Name: "main"}, {Name: "helper"}}
			for i := range row.pods {
				row.pods[i].Namespace = "team-a"
			}
			explanation := ExplainJob(&JobDetails{
				Job: job, Pods: row.pods, Events: row.events,
				Finding: jobreport.Finding{Category: jobreport.CategoryZombie, Reason: jobreport.ReasonNoReadyPods},
			})
			text := strings.Join(explanation.Lines(terminal.Style{}, explanationTime), "\n")
			hasCause := strings.Contains(text, "\n  cause ")
			require.True(t, hasCause == (row.cause != "") && strings.Contains(text, row.cause+"\n"), "missing the cause %q:\n%s", row.cause, text)
			require.Equal(t, row.command, explanation.Command)
		})
	}
}

func TestAJobExplanationEndsWithTheNextStepAndTheLog(t *testing.T) {
	job := &batchv1.Job{}
	job.Name, job.Namespace = "train", "team-a"
	job.Status.Active, job.Status.Ready, job.Status.FailedIndexes = 2, new(int32(0)), new("1,3-5")
	explanation := ExplainJob(&JobDetails{
		Job: job, Pods: []corev1.Pod{podWithContainer(corev1.ContainerStatus{Image: "etl:1", State: terminated(3, "Error", "")})},
		Finding: jobreport.Finding{Category: jobreport.CategoryZombie, Reason: jobreport.ReasonStuckTerminating, Message: "waiting for finalizer x", Since: explanationTime.Add(-48 * time.Hour)},
	})
	explanation.Log = []string{"connecting", "\x1b[31mno route\x1b[0m"}
	want := `job.batch/train   Zombie   StuckTerminating   for 2d
  message          waiting for finalizer x
  pods             2 active, 0 ready, 0 succeeded, 0 failed
  indexes failed   1,3-5
  cause            Error: 1 Pod with container main, which exited with code 3 (60s ago)
  image            etl:1
  next             Check the nodes of Pods that do not terminate. If the controller of the finalizer no longer runs, remove the finalizer with kubectl edit.
  command          kubectl get pods -n team-a -l batch.kubernetes.io/job-name=train -o wide
  log of           p main
    connecting
    `
	got := strings.Join(explanation.Lines(terminal.Style{}, explanationTime), "\n")
	require.True(t, strings.HasPrefix(got, want) && !strings.Contains(got, "\x1b"), "explanation (-want +got):\n%s", cmp.Diff(want, got))
}
