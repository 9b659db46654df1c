package operator

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/yardmaster/yardmaster/test/require"
)

func TestSidecarsAndProxiesRunTheImageOfTheOperatorsPod(t *testing.T) {
	pod := func(name, container string) *corev1.Pod {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "platform", Name: name}}
		pod.Spec.Containers = []corev1.Container{{Name: "injected", Image: "mesh:v1"}, {Name: container, Image: "a@sha256:1"}}
		return pod
	}
	reader := fake.NewClientBuilder().WithObjects(pod("right", "yardmaster"), pod("renamed", "other")).Build()
	for name, want := range map[string]string{"right": "a@sha256:1 ", "renamed": "no container yardmaster", "missing": "not found"} {
		image, err := imageOfPod(t.Context(), reader, client.ObjectKey{Namespace: "platform", Name: name})
		require.Contains(t, fmt.Sprint(image, " ", err), want)
	}
}
