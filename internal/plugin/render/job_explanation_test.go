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

func TestJobCauses(t *testing.T) {
	evicted := corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted", Message: "The node was low on resource: memory."}}
	terminating := corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: new(metav1.NewTime(explanationTime.Add(time.Hour))), DeletionGracePeriodSeconds: new(int64(3600))},
		Spec:       corev1.PodSpec{NodeName: "node-3"},
	}
	backOff := func(name string) corev1.Pod {
		return podWithContainer(corev1.ContainerStatus{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{
			Reason: "CrashLoopBackOff", Message: "back-off 20s restarting failed container=main pod=" + name + "_team-a(f104c646-d8b7)",
		}}})
	}
	for name, row := range map[string]struct {
		details JobDetails
		want    []string
	}{
		"Pods that fit no node": {
			JobDetails{Pods: []corev1.Pod{unschedulablePod("a"), unschedulablePod("b")}},
			[]string{"2 Pods unschedulable: 0/5 nodes have nvidia.com/gpu"},
		},
		"an image that cannot be pulled": {
			JobDetails{Pods: []corev1.Pod{podWithContainer(corev1.ContainerStatus{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "not found"}}})}},
			[]string{"1 Pod with container main in ImagePullBackOff: not found"},
		},
		"a container that crashes": {
			JobDetails{Pods: []corev1.Pod{podWithContainer(corev1.ContainerStatus{
				State:                corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
				LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "OOMKilled"}},
			})}},
			[]string{"1 Pod with container main in CrashLoopBackOff, last exited with code 137 (OOMKilled)"},
		},
		"several containers that crash": {
			JobDetails{Pods: []corev1.Pod{backOff("etl-x7k2p"), backOff("etl-9q4zt")}},
			[]string{"2 Pods with container main in CrashLoopBackOff: back-off 20s restarting failed container=main"},
		},
		"a Pod that starts": {
			JobDetails{Pods: []corev1.Pod{podWithContainer(corev1.ContainerStatus{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}}})}}, nil,
		},
		"an evicted Pod":                    {JobDetails{Pods: []corev1.Pod{evicted}}, []string{"1 Pod failed: The node was low on resource: memory."}},
		"a Pod that does not terminate":     {JobDetails{Pods: []corev1.Pod{terminating}}, []string{"1 Pod terminating on node node-3 since " + explanationTime.UTC().Format(time.RFC3339)}},
		"an event that repeats a condition": {JobDetails{Pods: []corev1.Pod{unschedulablePod("a")}, Events: []corev1.Event{warning("a", "FailedScheduling", "0/5 nodes")}}, []string{"1 Pod unschedulable: 0/5 nodes have nvidia.com/gpu"}},
		"an exhausted quota, several times": {
			JobDetails{Events: []corev1.Event{
				warning("job", "FailedCreate", `Error creating: pods "etl-x7k2p" is forbidden: exceeded quota: team-a, requested: pods=1, used: pods=0, limited: pods=0`),
				warning("job", "FailedCreate", `Error creating: pods "etl-9q4zt" is forbidden: exceeded quota: team-a, requested: pods=1, used: pods=0, limited: pods=0`),
			}},
			[]string{"FailedCreate: pods is forbidden: exceeded quota: team-a, requested: pods=1, used: pods=0, limited: pods=0"},
		},
		"a missing ServiceAccount": {
			JobDetails{Events: []corev1.Event{warning("job", "FailedCreate", `Error creating: pods "etl-" is forbidden: error looking up service account team-a/nope: serviceaccount "nope" not found`)}},
			[]string{`FailedCreate: pods is forbidden: error looking up service account team-a/nope: serviceaccount "nope" not found`},
		},
		"an event that is no warning": {JobDetails{Events: []corev1.Event{{Type: corev1.EventTypeNormal, Reason: "SuccessfulCreate", Message: "x"}}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(row.want, jobCauses(&row.details)); diff != "" {
				t.Errorf("causes (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAJobExplanationEndsWithTheNextStep(t *testing.T) {
	job := &batchv1.Job{}
	job.Name = "train"
	job.Status.Active, job.Status.Ready = 2, new(int32(0))
	lines := JobExplanation(terminal.Style{}, JobDetails{
		Job: job, Pods: []corev1.Pod{unschedulablePod("a")},
		Finding: jobreport.Finding{Category: jobreport.CategoryZombie, Reason: jobreport.ReasonStuckTerminating, Message: "waiting for finalizer x", Since: explanationTime.Add(-48 * time.Hour)},
	}, explanationTime)
	want := `job.batch/train   Zombie   StuckTerminating   for 2d
  message   waiting for finalizer x
  pods      2 active, 0 ready, 0 succeeded, 0 failed
  cause     1 Pod unschedulable: 0/5 nodes have nvidia.com/gpu
  next      ` + jobreport.NextStep(jobreport.ReasonStuckTerminating)
	if diff := cmp.Diff(want, strings.Join(lines, "\n")); diff != "" {
		t.Errorf("explanation (-want +got):\n%s", diff)
	}
}
