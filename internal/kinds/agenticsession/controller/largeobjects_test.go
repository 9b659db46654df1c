package controller

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kube"
)

func TestALargeSessionIsCachedWithoutItsInputs(t *testing.T) {
	text := strings.Repeat("x", kube.LargeBytes)
	newSession := func() *v1alpha1.AgenticSession {
		s := &v1alpha1.AgenticSession{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "fix"}}
		s.Spec.Runner, s.Spec.UserContext, s.Spec.Workspace = "default", &v1alpha1.UserContext{UserID: "ann"}, &v1alpha1.WorkspaceClaim{}
		s.Status.Phase = v1alpha1.SessionRunning
		return s
	}
	for title, enlarge := range map[string]func(*v1alpha1.AgenticSessionSpec){
		"prompt": func(spec *v1alpha1.AgenticSessionSpec) { spec.Prompt = text + "x" },
		"variables": func(spec *v1alpha1.AgenticSessionSpec) {
			spec.EnvironmentVariables = map[string]v1alpha1.EnvironmentValue{"A": v1alpha1.EnvironmentValue(text)}
		},
		"repos": func(spec *v1alpha1.AgenticSessionSpec) {
			spec.Repos = []v1alpha1.SessionRepo{{GitSource: v1alpha1.GitSource{URL: v1alpha1.GitURL(text), Branch: "main"}}}
		},
		"tool servers": func(spec *v1alpha1.AgenticSessionSpec) {
			spec.Agent.MCPServers.Custom = map[string]apiextensionsv1.JSON{"a": {Raw: []byte(`"` + text + `"`)}}
		},
		"disabled tool servers": func(spec *v1alpha1.AgenticSessionSpec) { spec.Agent.MCPServers.Disabled = []string{text, "a"} },
	} {
		t.Run(title, func(t *testing.T) {
			s := newSession()
			enlarge(&s.Spec)
			trimmed, err := TrimSession(s)
			if err != nil {
				t.Fatal(err)
			}
			got := trimmed.(*v1alpha1.AgenticSession)
			if diff := cmp.Diff(newSession().Spec, got.Spec); diff != "" || got.Status.Phase != v1alpha1.SessionRunning {
				t.Errorf("phase %s, spec (-want, +got):\n%s", got.Status.Phase, diff)
			}
		})
	}
}
