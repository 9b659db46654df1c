package operator

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/yardmaster/yardmaster/test/require"
)

func TestSidecarsAndProxiesRunTheImageOfTheOperatorsPod(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "platform", Name: "yardmaster-1"}}
	pod.Spec.Containers = []corev1.Container{
		{Name: "injected", Image: "mesh:v1"}, {Name: "yardmaster", Image: "registry.example/yardmaster@sha256:1234"},
	}
	reader := fake.NewClientBuilder().WithObjects(pod).Build()
	image, err := imageOfPod(t.Context(), reader, client.ObjectKeyFromObject(pod))
	require.True(t, err == nil && image == "registry.example/yardmaster@sha256:1234", "the image is %q: %v", image, err)
}

func TestAnUnknownImageOfTheOperatorIsAnError(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "platform", Name: "renamed"}}
	pod.Spec.Containers = []corev1.Container{{Name: "other", Image: "other:v1"}}
	reader := fake.NewClientBuilder().WithObjects(pod).Build()
	for name, want := range map[string]string{"renamed": "no container yardmaster", "missing": "not found"} {
		_, err := imageOfPod(t.Context(), reader, client.ObjectKey{Namespace: "platform", Name: name})
		require.ErrorContains(t, err, want)
	}
}
