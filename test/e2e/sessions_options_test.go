//go:build e2e

package e2e

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/agenticsession"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

// optionsScript reports the certificate authorities, and a file of a volume that it must not write to.
const optionsScript = `
writable=read-only
if (: > /srv/docs/probe) 2> /dev/null; then writable=writable; fi
printf '{"summary": "%s|%s|%s"}' "$(cat "$SSL_CERT_FILE")" "$(cat /srv/docs/readme)" $writable > "$AGENTIC_RESULT_FILE"
`

func testSessionPodOptions(t *testing.T) {
	files := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "files-", Namespace: sessionsNamespace}}
	files.Data = map[string]string{"all.pem": "authorities", "readme": "hello"}
	priority := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{GenerateName: "agents-"}, Value: 7}
	for _, object := range []client.Object{files, priority} {
		requireNoError(t, cluster.Create(t.Context(), object))
		deleteAtEnd(t, object)
	}
	var nodes corev1.NodeList
	requireNoError(t, cluster.List(t.Context(), &nodes))
	node := nodes.Items[len(nodes.Items)-1].Name
	runner := createRunnerIn(t, sessionsNamespace, "options-", func(spec *v1alpha1.SessionRunnerSpec) {
		spec.Image, testbuilder.RunnerContainer(spec).Command, testbuilder.RunnerContainer(spec).ImagePullPolicy = busyboxImage, shellCommand, corev1.PullIfNotPresent
		testbuilder.RunnerPod(spec).NodeSelector, testbuilder.RunnerPod(spec).PriorityClassName = map[string]string{corev1.LabelHostname: node}, priority.Name
		testbuilder.RunnerPod(spec).Tolerations = []corev1.Toleration{{Key: "agents", Operator: corev1.TolerationOpExists}}
		spec.Template.Labels, spec.Template.Annotations = map[string]string{"team": "a"}, map[string]string{"cost": "7"}
		spec.CABundle = &v1alpha1.KeyReference{LocalReference: v1alpha1.LocalReference{Name: files.Name}, Key: "all.pem"}
		testbuilder.MountVolume(spec, "docs", "/srv/docs", testbuilder.ConfigMapVolume(files.Name))
	})
	s := createSession(t, runner, optionsScript, nil)
	s.waitForPhase(v1alpha1.SessionCompleted)
	s.wantSummary(strings.Join([]string{"authorities", "hello", "read-only"}, "|"))
	var pods corev1.PodList
	requireNoError(t, cluster.List(t.Context(), &pods, client.InNamespace(sessionsNamespace), client.MatchingLabels{agenticsession.LabelSessionUID: string(s.s.UID), "team": "a"}))
	if len(pods.Items) != 1 {
		t.Fatalf("%d Pods have the label of the SessionRunner", len(pods.Items))
	}
	if pod := pods.Items[0]; pod.Spec.NodeName != node || *pod.Spec.Priority != priority.Value || pod.Annotations["cost"] != "7" {
		t.Errorf("the Pod has node %s, priority %d and annotations %v", pod.Spec.NodeName, *pod.Spec.Priority, pod.Annotations)
	}
}
