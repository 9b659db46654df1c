package agenticsession

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

func newPrepullRunner() *v1alpha1.SessionRunner {
	r := &v1alpha1.SessionRunner{ObjectMeta: metav1.ObjectMeta{Name: "claude", Namespace: "a", UID: "u-1"}}
	r.Spec = v1alpha1.SessionRunnerSpec{
		Image: "registry.example/claude:1", AllowedImages: []string{"registry.example/claude:2", "registry.example/claude:1"},
		Sidecars: []v1alpha1.SessionSidecar{{Name: "db", Image: "db:1"}}, Git: &v1alpha1.SessionGit{Image: "git:1"}, Archive: &v1alpha1.SessionArchive{ClaimName: "t"},
		RuntimeClassName: new("sandbox"), NodeSelector: map[string]string{"pool": "agents"}, Tolerations: []corev1.Toleration{{Key: "agents"}},
		ImagePullSecrets: []v1alpha1.SecretRef{{Name: "registry"}}, ImagePullPolicy: corev1.PullAlways, RunAsUser: new(int64(1000)),
	}
	return r
}

func TestPrepullPullsEachImageOnTheNodesOfTheSessions(t *testing.T) {
	d := NewPrepull(newPrepullRunner(), "yardmaster:1")
	pod := &d.Spec.Template.Spec
	var got []string
	for i := range pod.InitContainers {
		c := &pod.InitContainers[i]
		got = append(got, c.Image+" "+string(c.ImagePullPolicy)+" "+strings.Join(append(c.Command, c.Args...), " "))
	}
	want := []string{
		"yardmaster:1 IfNotPresent /session-runner prepull --copy-to=/prepull",
		"registry.example/claude:1 Always /prepull/session-runner prepull", "registry.example/claude:2 Always /prepull/session-runner prepull",
		"db:1 Always /prepull/session-runner prepull", "git:1 Always /prepull/session-runner prepull",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("init containers (-want +got):\n%s", diff)
	}
	if *pod.RuntimeClassName != "sandbox" || pod.NodeSelector["pool"] != "agents" || pod.Tolerations[0].Key != "agents" || pod.ImagePullSecrets[0].Name != "registry" {
		t.Errorf("Pod %+v", pod)
	}
	if d.Name != "claude-prepull" || d.OwnerReferences[0].Name != "claude" || !*d.OwnerReferences[0].Controller || d.Labels[LabelRunnerUID] != "u-1" {
		t.Errorf("DaemonSet %+v", d.ObjectMeta)
	}
}

// Nothing of an image runs, and no container can write anything but the copy of the program.
func TestPrepullRunsNothingOfTheImagesAndIsRestricted(t *testing.T) {
	pod := NewPrepull(newPrepullRunner(), "yardmaster:1").Spec.Template.Spec
	for _, c := range append(pod.InitContainers, pod.Containers...) {
		s := c.SecurityContext
		if !*s.RunAsNonRoot || *s.AllowPrivilegeEscalation || !*s.ReadOnlyRootFilesystem || s.Capabilities.Drop[0] != "ALL" || len(c.Env) > 0 {
			t.Errorf("container %s: %+v", c.Name, s)
		}
		if len(c.VolumeMounts) != 1 || c.VolumeMounts[0].ReadOnly != (c.Name != "copy") || c.Command[1] != "prepull" {
			t.Errorf("container %s: mounts %+v, command %v", c.Name, c.VolumeMounts, c.Command)
		}
	}
	if *pod.AutomountServiceAccountToken || *pod.SecurityContext.RunAsUser != 1000 {
		t.Errorf("Pod %+v", pod.SecurityContext)
	}
}
