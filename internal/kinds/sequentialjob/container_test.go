package sequentialjob

import (
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/test/assert"
	"github.com/yardmaster/yardmaster/test/require"
)

func TestStepContainerIsMergedIntoTheTemplateContainer(t *testing.T) {
	type c = corev1.Container
	type env = corev1.EnvVar
	type mount = corev1.VolumeMount
	type port = corev1.ContainerPort
	type security = corev1.SecurityContext
	quantities := func(pairs ...string) corev1.ResourceList {
		list := corev1.ResourceList{}
		for i := 0; i < len(pairs); i += 2 {
			list[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
		}
		return list
	}
	probe := func(period, threshold int32) *corev1.Probe {
		return &corev1.Probe{PeriodSeconds: period, FailureThreshold: threshold}
	}
	fieldRef := &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}
	for name, test := range map[string]struct{ defaults, step, want c }{
		"a field that only the template sets is kept": {
			c{Image: "base", WorkingDir: "/src", Command: []string{"sh"}}, c{}, c{Image: "base", WorkingDir: "/src", Command: []string{"sh"}},
		},
		"the step overrides scalars, command, args and probes": {
			c{Image: "base", Command: []string{"sh"}, Args: []string{"-c", "true"}, TTY: true, LivenessProbe: probe(1, 9)},
			c{Image: "mine", Command: []string{"make"}, Args: []string{"all"}, LivenessProbe: probe(2, 0)},
			c{Image: "mine", Command: []string{"make"}, Args: []string{"all"}, TTY: true, LivenessProbe: probe(2, 0)},
		},
		"a command of the step keeps the template's args": {
			c{Command: []string{"sh"}, Args: []string{"-c"}}, c{Command: []string{"bash"}}, c{Command: []string{"bash"}, Args: []string{"-c"}},
		},
		"env entries are replaced by name and keep the template's order": {
			c{Env: []env{{Name: "A", Value: "a"}, {Name: "B", ValueFrom: fieldRef}}},
			c{Env: []env{{Name: "C", Value: "c"}, {Name: "B", Value: "b"}}},
			c{Env: []env{{Name: "A", Value: "a"}, {Name: "B", Value: "b"}, {Name: "C", Value: "c"}}},
		},
		"envFrom is appended": {
			c{EnvFrom: []corev1.EnvFromSource{{Prefix: "A"}}},
			c{EnvFrom: []corev1.EnvFromSource{{Prefix: "B"}}},
			c{EnvFrom: []corev1.EnvFromSource{{Prefix: "A"}, {Prefix: "B"}}},
		},
		"mounts are merged by path": {
			c{VolumeMounts: []mount{{Name: "cache", MountPath: "/cache", ReadOnly: true}, {Name: "src", MountPath: "/src"}}},
			c{VolumeMounts: []mount{{Name: "fast", MountPath: "/cache"}, {Name: "src", MountPath: "/src2"}}},
			c{VolumeMounts: []mount{{Name: "fast", MountPath: "/cache"}, {Name: "src", MountPath: "/src"}, {Name: "src", MountPath: "/src2"}}},
		},
		"ports are merged by number and protocol, TCP by default": {
			c{Ports: []port{{ContainerPort: 80, Protocol: "TCP"}, {ContainerPort: 53, Protocol: "UDP"}}},
			c{Ports: []port{{Name: "web", ContainerPort: 80}, {ContainerPort: 53}}},
			c{Ports: []port{{Name: "web", ContainerPort: 80}, {ContainerPort: 53, Protocol: "UDP"}, {ContainerPort: 53}}},
		},
		"resources are merged per key": {
			c{Resources: corev1.ResourceRequirements{Requests: quantities("cpu", "1", "memory", "1Gi"), Limits: quantities("memory", "1Gi")}},
			c{Resources: corev1.ResourceRequirements{Requests: quantities("cpu", "2")}},
			c{Resources: corev1.ResourceRequirements{Requests: quantities("cpu", "2", "memory", "1Gi"), Limits: quantities("memory", "1Gi")}},
		},
		"securityContext is merged per field": {
			c{SecurityContext: &security{RunAsNonRoot: new(true), RunAsUser: new(int64(1000))}},
			c{SecurityContext: &security{RunAsUser: new(int64(2000)), Privileged: new(false)}},
			c{SecurityContext: &security{RunAsNonRoot: new(true), RunAsUser: new(int64(2000)), Privileged: new(false)}},
		},
		"a securityContext field that the step sets to false or 0 takes precedence": {
			c{SecurityContext: &security{RunAsNonRoot: new(true), RunAsUser: new(int64(1000))}},
			c{SecurityContext: &security{RunAsNonRoot: new(false), RunAsUser: new(int64(0))}},
			c{SecurityContext: &security{RunAsNonRoot: new(false), RunAsUser: new(int64(0))}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			defaults, step := test.defaults.DeepCopy(), test.step.DeepCopy()
			got := mergeContainer(defaults, step)
			assert.Equal(t, "merged", test.want, got)
			require.True(t, cmp.Equal(*defaults, test.defaults) && cmp.Equal(*step, test.step), "merging changed its arguments")
		})
	}
}

// An operator that copies the template field by field omits annotations, the securityContext, pull secrets or init containers.
func TestEveryFieldOfTheTemplateAndOfAStepIsKept(t *testing.T) {
	var template corev1.PodTemplateSpec
	setNonZero(reflect.ValueOf(&template).Elem())
	template.Spec.Containers[0].Name = "step"
	sj := sequence("build").Template(template).Obj()
	sj.Spec.Containers[0].Image = ""

	got := podTemplate(sj, &sj.Spec.Containers[0])

	for key, value := range template.Labels {
		assert.Equal(t, "label "+key, value, got.Labels[key])
	}
	want := template.DeepCopy()
	want.Labels = got.Labels
	want.Spec.Containers[0].Name = "build"
	assert.Equal(t, "Pod template", *want, got)

	plain := sequence("build").Obj()
	plain.Spec.Containers[0].Container = template.Spec.Containers[0]
	got = podTemplate(plain, &plain.Spec.Containers[0])
	assert.Equal(t, "containers, if all fields are those of the step", want.Spec.Containers, got.Spec.Containers)
	assert.Equal(t, "restartPolicy of a template without one", corev1.RestartPolicyNever, got.Spec.RestartPolicy)
}

func setNonZero(v reflect.Value) {
	switch v.Interface().(type) {
	case resource.Quantity:
		v.Set(reflect.ValueOf(resource.MustParse("7")))
		return
	case metav1.Time:
		v.Set(reflect.ValueOf(metav1.NewTime(time.Unix(1, 0))))
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for _, field := range v.Fields() {
			setNonZero(field)
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		setNonZero(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		setNonZero(v.Index(0))
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		setNonZero(key)
		setNonZero(value)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.String:
		v.SetString("text")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(7)
	case reflect.Uint8:
		v.SetUint(7)
	default:
		panic("setNonZero does not support " + v.Type().String())
	}
}
