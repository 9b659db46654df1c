package plugin

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

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
