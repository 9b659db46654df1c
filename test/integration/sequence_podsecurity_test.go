package integration

import (
	"strings"
	"testing"

	"github.com/yardmaster/yardmaster/test/testbuilder"
)

func TestKubectlWarnsAboutPodsThatTheNamespaceRefuses(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t, map[string]string{"pod-security.kubernetes.io/enforce": "restricted"})
	var warnings warningList
	s := newSequenceTest(t, ns, testbuilder.SequentialJob("warned", "").Step("a").Obj())
	if err := strictClient(t, &warnings).Create(t.Context(), s.sj); err != nil {
		t.Fatal(err)
	}
	if text := strings.Join(warnings.all, "\n"); !strings.Contains(text, `spec.containers[0]: the namespace enforces PodSecurity "restricted:latest" and will refuse the Pod: allowPrivilegeEscalation != false`) {
		t.Errorf("warnings %q", text)
	}
}
