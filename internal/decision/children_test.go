package decision

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// The numbers are those of the kubelet: 4 KiB for each container, 12 KiB for each Pod.
func TestContainersShareWhatAPodCanReport(t *testing.T) {
	for containers, want := range map[int]int{1: 4096, 3: 4096, 4: 3072, 5: 2457, 13: 945} {
		if got := TerminationMessageLimit(containers); got != want {
			t.Errorf("%d containers: limit %d, want %d", containers, got, want)
		}
	}
	pod := &corev1.PodSpec{
		InitContainers:      make([]corev1.Container, 2),
		Containers:          make([]corev1.Container, 1),
		EphemeralContainers: make([]corev1.EphemeralContainer, 1),
	}
	if got := CountContainers(pod); got != 4 {
		t.Errorf("%d containers, want all types: 4", got)
	}
}
