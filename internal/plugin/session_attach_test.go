package plugin

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/agenticsession"
)

func TestAttachExplainsWhyASessionAcceptsNoMessages(t *testing.T) {
	interactive := func(s *v1alpha1.AgenticSession) { s.Spec.Interactive = true }
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "pair-r1-a1-x", Namespace: "a", Labels: map[string]string{agenticsession.LabelSessionUID: "1"}}}
	for want, s := range map[string]*v1alpha1.AgenticSession{
		"is not interactive":                              agenticSession("pair", v1alpha1.SessionRunning),
		"is Pending and has no Pod that accepts messages": agenticSession("pair", v1alpha1.SessionPending, interactive),
	} {
		code, out, errOut := runPluginArgs(t, []string{"session", "attach", "pair"}, newFakeClient(t, s, pod))
		if code != exitError || out != "" || !strings.Contains(errOut, want) {
			t.Errorf("exit code %d, output %q, stderr %q", code, out, errOut)
		}
	}
}

func TestOnlyAReadyPodOfAnInteractiveSessionAcceptsMessages(t *testing.T) {
	pod := &corev1.Pod{
		Spec:   corev1.PodSpec{Containers: []corev1.Container{{Ports: []corev1.ContainerPort{{Name: "other", ContainerPort: 1}, {Name: "session", ContainerPort: 8080}}}}},
		Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
	}
	if got := agenticsession.InteractivePort(pod); got != 8080 {
		t.Errorf("port %d", got)
	}
	pod.Status.Conditions[0].Status = corev1.ConditionFalse
	if got := agenticsession.InteractivePort(pod); got != 0 {
		t.Errorf("port %d of a Pod that is not ready", got)
	}
}
