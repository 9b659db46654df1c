package workerpool

import (
	"os"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/pod/adminauth"
	"github.com/yardmaster/yardmaster/test/require"
)

func adminAccess(key string) *AdminAccess {
	return &AdminAccess{PublicKey: "public " + key, PreStopKey: []byte(key)}
}

// environmentOf returns the values of a container's variables.
func environmentOf(c *corev1.Container) map[string]string {
	values := map[string]string{}
	for _, e := range c.Env {
		values[e.Name] = e.Value
	}
	return values
}

func TestTheContainerThatTakesMessagesRecognizesTheOperatorAndTheKubelet(t *testing.T) {
	own := &corev1.LifecycleHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/bye", Port: intstr.FromInt32(8080)}}
	for title, row := range map[string]struct {
		mode v1alpha1.DrainMode
		hook *corev1.LifecycleHandler
		// want the secret in the hook.
		want bool
	}{
		"mode HTTP":                              {v1alpha1.DrainHTTP, nil, true},
		"mode Sidecar":                           {v1alpha1.DrainSidecar, nil, true},
		"mode Signal, which has no hook":         {v1alpha1.DrainSignal, nil, false},
		"another hook of the user gets nothing":  {v1alpha1.DrainHTTP, own, false},
		"the same hook of the user gets it, too": {v1alpha1.DrainHTTP, &corev1.LifecycleHandler{HTTPGet: httpGetAction("/prestop").HTTPGet}, true},
	} {
		t.Run(title, func(t *testing.T) {
			s := newTestPool(1)
			s.Operator = OperatorSettings{Image: "yardmaster:1", Admin: adminAccess("a")}
			s.Pool.Spec.Drain = &v1alpha1.Drain{Mode: row.mode}
			worker := corev1.Container{Name: "worker"}
			if row.hook != nil {
				worker.Lifecycle = &corev1.Lifecycle{PreStop: row.hook}
			}
			s.Pool.Spec.Template = &corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "other"}, worker}}}
			pod := builtDeployment(t, s).Spec.Template.Spec
			secret := adminauth.PreStopSecret([]byte("a"), s.revisionHash())
			consumer := consumerOf(&pod)
			values := environmentOf(consumer)
			require.Equal(t, "/etc/yardmaster/admin/operator.pem", values["YARDMASTER_ADMIN_KEY_FILE"])
			require.Equal(t, [2]string{secret, ":18081"}, [2]string{values["YARDMASTER_PRESTOP_SECRET"], values["YARDMASTER_METRICS_ADDRESS"]})
			mount := consumer.VolumeMounts[len(consumer.VolumeMounts)-1]
			volume := pod.Volumes[len(pod.Volumes)-1]
			isMounted := mount.MountPath == "/etc/yardmaster/admin" && volume.Name == mount.Name && volume.ConfigMap.Name == "mail-workers"
			require.True(t, isMounted, "mount %+v, volume %+v", mount, volume)
			var header []corev1.HTTPHeader
			if lifecycle := pod.Containers[1].Lifecycle; lifecycle != nil {
				header = lifecycle.PreStop.HTTPGet.HTTPHeaders
			}
			var want []corev1.HTTPHeader
			if row.want {
				want = []corev1.HTTPHeader{{Name: "Yardmaster-Prestop-Secret", Value: secret}}
			}
			require.Equal(t, want, header)
			require.True(t, len(pod.Containers[0].Env) == 0, "another container has the variables %v", pod.Containers[0].Env)
		})
	}
}

func TestAnUpgradeOfTheOperatorRestartsNoWorkersToProtectThem(t *testing.T) {
	for _, mode := range []v1alpha1.DrainMode{v1alpha1.DrainHTTP, v1alpha1.DrainSidecar, v1alpha1.DrainSignal} {
		t.Run(string(mode), func(t *testing.T) {
			s := newTestPool(1)
			s.Operator.Image = "yardmaster:1"
			s.Pool.Spec.Drain = &v1alpha1.Drain{Mode: mode}
			observe := func() *fleet { return newFleet(s.Observation) }
			existing := func(r *revisionState) []Revision {
				return []Revision{{
					Name: r.Name, Hash: r.Hash, SidecarImage: SidecarImage(&TemplateOf(r.workload).Spec), PreStopSecret: PreStopSecretOf(&TemplateOf(r.workload).Spec),
				}}
			}
			before := observe().updated
			s.Revisions = existing(before)
			require.True(t, s.Revisions[0].PreStopSecret == "", "the revision has a secret although the operator has no key")
			assertKept := func(revision *revisionState, access *AdminAccess) {
				t.Helper()
				s.Operator.Admin = access
				after := observe()
				require.Equal(t, 1, len(after.revisions))
				require.Equal(t, revision.workload, after.updated.workload)
			}
			assertKept(before, adminAccess("a"))
			s.Pool.Spec.Version = "2"
			next := observe().updated
			s.Revisions = existing(next)
			require.True(t, s.Revisions[0].PreStopSecret != "", "the next revision is not protected")
			assertKept(next, adminAccess("b"))
			assertKept(next, nil)
		})
	}
}

func TestWorkersGetThePublicKeyFromTheConfigMap(t *testing.T) {
	s := newTestPool(1)
	for _, access := range []*AdminAccess{nil, adminAccess("a"), adminAccess("b")} {
		want := ""
		if s.Operator.Admin = access; access != nil {
			want = access.PublicKey
		}
		for _, object := range Decide(s.Observation).SharedObjects {
			if c, is := object.(*corev1.ConfigMap); is {
				require.Equal(t, want, c.Data["operator.pem"])
			}
		}
	}
}

func TestWorkersOmitNamesFromMetricsAsTheirOperatorDoes(t *testing.T) {
	s := newTestPool(1)
	s.Operator.Admin = adminAccess("a")
	pod := builtDeployment(t, s).Spec.Template.Spec
	variables := consumerOf(&pod).Env
	i := slices.IndexFunc(variables, func(e corev1.EnvVar) bool { return e.Name == "YARDMASTER_METRICS_OMIT_OBJECT_NAMES" })
	require.True(t, i >= 0, "no variable in %v", variables)
	reference := variables[i].ValueFrom.ConfigMapKeyRef
	for _, omit := range []bool{false, true} {
		s.Operator.OmitObjectNames = omit
		require.Equal(t, pod, builtDeployment(t, s).Spec.Template.Spec)
		for _, object := range Decide(s.Observation).SharedObjects {
			config, is := object.(*corev1.ConfigMap)
			if !is {
				continue
			}
			value, found := config.Data[reference.Key]
			isSet := found == omit && (!found || value == "true")
			require.True(t, isSet && config.Name == reference.Name && *reference.Optional, "flag %t: %+v in %s: %q", omit, reference, config.Name, value)
		}
	}
}

func TestThePodMonitorSelectsTheWorkersOfEveryPoolAndTheirMetricsPort(t *testing.T) {
	content, err := os.ReadFile("../../../config/components/prometheus/pod_monitor.yaml")
	require.NoError(t, err)
	var monitor struct {
		Spec struct {
			NamespaceSelector   struct{ Any bool }
			Selector            metav1.LabelSelector
			PodMetricsEndpoints []struct{ Port string }
		}
	}
	require.NoError(t, yaml.Unmarshal(content, &monitor))
	selector, err := metav1.LabelSelectorAsSelector(&monitor.Spec.Selector)
	require.NoError(t, err)
	s := newTestPool(1)
	s.Operator.Admin = adminAccess("a")
	template := builtDeployment(t, s).Spec.Template
	isOnlyWorkers := selector.Matches(labels.Set(template.Labels)) && !selector.Matches(labels.Set{"app": "a"})
	require.True(t, monitor.Spec.NamespaceSelector.Any && isOnlyWorkers, "%+v does not select only workers, in any namespace", monitor.Spec)
	for _, endpoint := range monitor.Spec.PodMetricsEndpoints {
		isPort := func(p corev1.ContainerPort) bool { return p.Name == endpoint.Port }
		require.True(t, slices.ContainsFunc(consumerOf(&template.Spec).Ports, isPort), "workers have no port %s", endpoint.Port)
	}
}
