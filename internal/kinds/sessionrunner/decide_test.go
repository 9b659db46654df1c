package sessionrunner

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/test/kstatustest"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

// The rows are those of docs/conditions.md.
func TestConditionsOfEachStateOfASessionRunner(t *testing.T) {
	hosts := []v1alpha1.SessionEgress{{Hosts: []v1alpha1.EgressHost{"api.example.com"}}}
	missing := func(kind string) []Reference { return []Reference{{kind, "a", "spec.field"}} }
	for title, test := range map[string]struct {
		egress  []v1alpha1.SessionEgress
		errors  field.ErrorList
		missing []Reference
		policy  string
		proxy   decision.State
		ready   metav1.ConditionStatus
		reason  string
		want    status.Status
	}{
		"sessions can use it":                {ready: metav1.ConditionTrue, reason: v1alpha1.ReasonReady, want: status.CurrentStatus},
		"its spec is invalid":                {errors: field.ErrorList{field.Required(field.NewPath("spec"), "")}, missing: missing("ConfigMap"), ready: metav1.ConditionFalse, reason: v1alpha1.ReasonInvalid, want: status.FailedStatus},
		"a ConfigMap does not exist":         {missing: missing("ConfigMap"), ready: metav1.ConditionFalse, reason: v1alpha1.ReasonConfigMapNotFound, want: status.InProgressStatus},
		"an admission policy does not exist": {missing: missing("ConfigMap"), policy: "a does not exist", ready: metav1.ConditionFalse, reason: v1alpha1.ReasonUnprotected, want: status.InProgressStatus},
		"a claim does not exist":             {missing: missing("PersistentVolumeClaim"), ready: metav1.ConditionFalse, reason: v1alpha1.ReasonClaimNotFound, want: status.InProgressStatus},
		"its ServiceAccount does not exist":  {missing: missing("ServiceAccount"), ready: metav1.ConditionFalse, reason: v1alpha1.ReasonServiceAccountNotFound, want: status.InProgressStatus},
		"its proxy is ready":                 {egress: hosts, proxy: decision.True(v1alpha1.ReasonEgressProxyReady, ""), ready: metav1.ConditionTrue, reason: v1alpha1.ReasonReady, want: status.CurrentStatus},
		"its proxy is being rolled out":      {egress: hosts, proxy: decision.False(v1alpha1.ReasonEgressProxyStarting, "0 of 2"), ready: metav1.ConditionFalse, reason: v1alpha1.ReasonEgressProxyStarting, want: status.InProgressStatus},
		"no proxy can run":                   {egress: hosts, proxy: decision.False(v1alpha1.ReasonEgressProxyUnavailable, "no image"), ready: metav1.ConditionFalse, reason: v1alpha1.ReasonEgressProxyUnavailable, want: status.FailedStatus},
		"its proxy is refused":               {egress: hosts, proxy: decision.False(v1alpha1.ReasonEgressProxyRefused, "refused"), ready: metav1.ConditionFalse, reason: v1alpha1.ReasonEgressProxyRefused, want: status.FailedStatus},
	} {
		t.Run(title, func(t *testing.T) {
			runner := &v1alpha1.SessionRunner{
				TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "SessionRunner"}, ObjectMeta: metav1.ObjectMeta{Name: "default", Generation: 3},
			}
			runner.Status.ObservedGeneration = -1
			kstatustest.AssertKstatus(t, runner, status.InProgressStatus)
			runner.Spec.Network.Egress = test.egress
			runner.Status = Decide(&Observation{Runner: runner, Now: time.Now(), Errors: test.errors, Missing: test.missing, Unprotected: test.policy, Proxy: test.proxy})
			kstatustest.AssertKstatus(t, runner, test.want)
			ready := meta.FindStatusCondition(runner.Status.Conditions, v1alpha1.ConditionReady)
			require.True(t, ready.Status == test.ready && ready.Reason == test.reason, "%+v", ready)
			saysWhat := len(test.missing) > 0 && len(test.errors) == 0 && test.policy == ""
			require.True(t, !saysWhat || strings.Contains(ready.Message, " a of spec.field does not exist"), "message %q", ready.Message)
			hasProxy := meta.FindStatusCondition(runner.Status.Conditions, v1alpha1.ConditionEgressProxyReady) != nil
			require.True(t, hasProxy == (test.egress != nil), "%+v", runner.Status.Conditions)
		})
	}
}

func TestTheStatusOfASessionRunnerKeepsTheAddressOfItsProxy(t *testing.T) {
	runner := &v1alpha1.SessionRunner{}
	runner.Spec.Network.Egress = []v1alpha1.SessionEgress{{Hosts: []v1alpha1.EgressHost{"api.example.com"}}}
	for _, test := range []struct{ observed, want string }{{"10.96.0.9:3128", "10.96.0.9:3128"}, {"", "10.96.0.9:3128"}} {
		runner.Status = Decide(&Observation{Runner: runner, Now: time.Now(), Address: test.observed, Proxy: decision.False(v1alpha1.ReasonEgressProxyStarting, "")})
		require.True(t, runner.Status.EgressProxyAddress == test.want, "address %q", runner.Status.EgressProxyAddress)
	}
	runner.Spec.Network.Egress[0].Hosts[0] = "10.0.0.1"
	runner.Status = Decide(&Observation{Runner: runner, Now: time.Now(), Proxy: decision.True(v1alpha1.ReasonEgressProxyReady, "")})
	condition := decision.FindReason(runner.Status.Conditions, v1alpha1.ConditionEgressProxyReady, v1alpha1.ReasonHostsInvalid)
	require.True(t, condition != nil && condition.Status == metav1.ConditionFalse, "conditions %+v with an invalid host", runner.Status.Conditions)
	runner.Spec.Network.Egress = nil
	status := Decide(&Observation{Runner: runner, Now: time.Now()})
	remains := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionEgressProxyReady) != nil
	require.True(t, !remains && status.EgressProxyAddress == "", "without hosts, the status of a proxy remains: %+v", status)
}

func TestObjectsThatASessionRunnerNeedsAreFoundExceptSecrets(t *testing.T) {
	runner := &v1alpha1.SessionRunner{}
	spec := &runner.Spec
	testbuilder.RunnerPod(spec).ServiceAccountName = "caller"
	testbuilder.RunnerPod(spec).ImagePullSecrets = []corev1.LocalObjectReference{{Name: "registry"}}
	testbuilder.MountVolume(spec, "docs", "/docs", testbuilder.ConfigMapVolume("docs"))
	testbuilder.MountVolume(spec, "models", "/models", testbuilder.ClaimVolume("models"))
	testbuilder.MountVolume(spec, "keys", "/keys", testbuilder.SecretVolume("keys"))
	testbuilder.MountVolume(spec, "extra", "/extra", testbuilder.ConfigMapVolume("extra"))
	testbuilder.RunnerPod(spec).Volumes[3].ConfigMap.Optional = new(true)
	testbuilder.MountVolume(spec, "nameless", "/nameless", testbuilder.ConfigMapVolume(""))
	testbuilder.MountVolume(spec, "invalid", "/invalid", testbuilder.ClaimVolume("a/b"))
	spec.CABundle = &v1alpha1.KeyReference{LocalReference: v1alpha1.LocalReference{Name: "cas"}}
	spec.Archive = &v1alpha1.SessionArchive{Archive: v1alpha1.Archive{ClaimRef: &v1alpha1.LocalReference{Name: "transcripts"}}}
	spec.Model = &v1alpha1.SessionModel{Prices: &v1alpha1.KeyReference{LocalReference: v1alpha1.LocalReference{Name: "prices"}}}
	spec.Git = &v1alpha1.SessionGit{SecretRef: &v1alpha1.LocalReference{Name: "forge"}}
	want := []Reference{
		{"ServiceAccount", "caller", "spec.template.spec.serviceAccountName"},
		{"ConfigMap", "docs", "spec.template.spec.volumes[0].configMap.name"},
		{"PersistentVolumeClaim", "models", "spec.template.spec.volumes[1].persistentVolumeClaim.claimName"},
		{"ConfigMap", "cas", "spec.caBundle.name"},
		{"ConfigMap", "prices", "spec.model.prices.name"},
		{"PersistentVolumeClaim", "transcripts", "spec.archive.claimRef.name"},
	}
	require.Equal(t, want, References(runner))
	spec.Model.Prices, spec.Archive.ClaimRef = nil, nil
	require.Equal(t, want[:4], References(runner))
}
