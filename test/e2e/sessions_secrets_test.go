//go:build e2e

package e2e

import (
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/require"
)

// accessScript reports, in its first run, what the runner can read. The second run reports the identifier
// that the first one wrote.
const accessScript = `
if [ "$AGENTIC_RUN" = 1 ]; then
	printf '{"summary": "%s|%s|%s|%s", "sdkSessionId": "$(MODEL_token)$$(HOME)"}' "$(ls /secrets/listed | tr '\n' ' ')" \
		"$(env | grep ^MODEL_)" "$(ls /var/run/secrets | tr '\n' ' ')" "$(cut -d. -f2 /var/run/secrets/tokens/cloud)" > "$AGENTIC_RESULT_FILE"
else
	printf '{"summary": "%s"}' "$AGENTIC_SDK_SESSION_ID" > "$AGENTIC_RESULT_FILE"
fi
`

func testSessionSecrets(t *testing.T) {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "listed", Namespace: sessionsNamespace}, StringData: map[string]string{"token": "hunter2", "other": "b"}}
	if err := cluster.Create(t.Context(), secret); !apierrors.IsAlreadyExists(err) {
		require.NoError(t, err)
	}
	s := createSession(t, tokenRunner, accessScript, func(spec *v1alpha1.AgenticSessionSpec) {
		spec.SecretMounts = []v1alpha1.SecretMount{{LocalReference: v1alpha1.LocalReference{Name: "listed"}}}
		spec.EnvFrom = []corev1.EnvFromSource{{Prefix: "MODEL_", SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "listed"}}}}
	})
	s.waitForPhase(v1alpha1.SessionCompleted)
	require.True(t, s.s.Status.Result != nil, "the session has no result")
	parts := strings.Split(s.s.Status.Result.Summary, "|")
	if len(parts) != 4 || !slices.Equal(parts[:3], []string{"token ", "MODEL_token=hunter2", "tokens "}) {
		t.Fatalf("the runner reads %q, want one file, one variable, and only the directory with tokens", parts)
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[3])
	require.NoError(t, err)
	var claims struct {
		Aud []string `json:"aud"`
		Sub string   `json:"sub"`
	}
	require.NoError(t, json.Unmarshal(payload, &claims))
	if want := "system:serviceaccount:" + sessionsNamespace + ":" + s.s.Name + "-session"; !slices.Equal(claims.Aud, []string{"cloud.example"}) || claims.Sub != want {
		t.Errorf("the token is for %q, of %s, want cloud.example and %s", claims.Aud, claims.Sub, want)
	}
	s.patchSpec(`{"rerun": {"id": "2"}}`)
	s.waitUntil("to complete its second run", func(status *v1alpha1.AgenticSessionStatus) bool {
		return status.Run == 2 && status.Phase == v1alpha1.SessionCompleted
	})
	s.wantSummary("$(MODEL_token)$$(HOME)")
}
