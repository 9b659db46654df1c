package sequentialjob

import (
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/test/testbuilder"
)

func TestStepContainerIsMergedIntoTheTemplateContainer(t *testing.T) {
	tests := map[string]struct {
		defaults, step, want corev1.Container
	}{
		"a field that only the template sets is kept": {
			defaults: corev1.Container{Image: "base", WorkingDir: "/src", Command: []string{"sh"}},
			want:     corev1.Container{Image: "base", WorkingDir: "/src", Command: []string{"sh"}},
		},
		"the step overrides scalars, command, args and probes": {
			defaults: corev1.Container{
				Image: "base", Command: []string{"sh"}, Args: []string{"-c", "true"}, TTY: true,
				LivenessProbe: &corev1.Probe{PeriodSeconds: 1, FailureThreshold: 9},
			},
			step: corev1.Container{
				Image: "mine", Command: []string{"make"}, Args: []string{"all"},
				LivenessProbe: &corev1.Probe{PeriodSeconds: 2},
			},
			want: corev1.Container{
				Image: "mine", Command: []string{"make"}, Args: []string{"all"}, TTY: true,
				LivenessProbe: &corev1.Probe{PeriodSeconds: 2},
			},
		},
		"a command of the step keeps the template's args": {
			defaults: corev1.Container{Command: []string{"sh"}, Args: []string{"-c"}},
			step:     corev1.Container{Command: []string{"bash"}},
			want:     corev1.Container{Command: []string{"bash"}, Args: []string{"-c"}},
		},
		"env entries are replaced by name and keep the template's order": {
			defaults: corev1.Container{Env: []corev1.EnvVar{
				{Name: "A", Value: "a"},
				{Name: "B", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}},
			}},
			step: corev1.Container{Env: []corev1.EnvVar{{Name: "C", Value: "c"}, {Name: "B", Value: "b"}}},
			want: corev1.Container{Env: []corev1.EnvVar{{Name: "A", Value: "a"}, {Name: "B", Value: "b"}, {Name: "C", Value: "c"}}},
		},
		"envFrom is appended": {
			defaults: corev1.Container{EnvFrom: []corev1.EnvFromSource{{Prefix: "A"}}},
			step:     corev1.Container{EnvFrom: []corev1.EnvFromSource{{Prefix: "B"}}},
			want:     corev1.Container{EnvFrom: []corev1.EnvFromSource{{Prefix: "A"}, {Prefix: "B"}}},
		},
		"mounts are merged by path": {
			defaults: corev1.Container{VolumeMounts: []corev1.VolumeMount{{Name: "cache", MountPath: "/cache", ReadOnly: true}, {Name: "src", MountPath: "/src"}}},
			step:     corev1.Container{VolumeMounts: []corev1.VolumeMount{{Name: "fast", MountPath: "/cache"}, {Name: "src", MountPath: "/src2"}}},
			want:     corev1.Container{VolumeMounts: []corev1.VolumeMount{{Name: "fast", MountPath: "/cache"}, {Name: "src", MountPath: "/src"}, {Name: "src", MountPath: "/src2"}}},
		},
		"ports are merged by number and protocol, TCP by default": {
			defaults: corev1.Container{Ports: []corev1.ContainerPort{{ContainerPort: 80, Protocol: corev1.ProtocolTCP}, {ContainerPort: 53, Protocol: corev1.ProtocolUDP}}},
			step:     corev1.Container{Ports: []corev1.ContainerPort{{Name: "web", ContainerPort: 80}, {ContainerPort: 53}}},
			want:     corev1.Container{Ports: []corev1.ContainerPort{{Name: "web", ContainerPort: 80}, {ContainerPort: 53, Protocol: corev1.ProtocolUDP}, {ContainerPort: 53}}},
		},
		"resources are merged per key": {
			defaults: corev1.Container{Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{"cpu": resource.MustParse("1"), "memory": resource.MustParse("1Gi")},
				Limits:   corev1.ResourceList{"memory": resource.MustParse("1Gi")},
			}},
			step: corev1.Container{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("2")}}},
			want: corev1.Container{Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{"cpu": resource.MustParse("2"), "memory": resource.MustParse("1Gi")},
				Limits:   corev1.ResourceList{"memory": resource.MustParse("1Gi")},
			}},
		},
		"securityContext is merged per field": {
			defaults: corev1.Container{SecurityContext: &corev1.SecurityContext{RunAsNonRoot: new(true), RunAsUser: new(int64(1000))}},
			step:     corev1.Container{SecurityContext: &corev1.SecurityContext{RunAsUser: new(int64(2000)), Privileged: new(false)}},
			want:     corev1.Container{SecurityContext: &corev1.SecurityContext{RunAsNonRoot: new(true), RunAsUser: new(int64(2000)), Privileged: new(false)}},
		},
		"a securityContext field that the step sets to false or 0 takes precedence": {
			defaults: corev1.Container{SecurityContext: &corev1.SecurityContext{RunAsNonRoot: new(true), RunAsUser: new(int64(1000))}},
			step:     corev1.Container{SecurityContext: &corev1.SecurityContext{RunAsNonRoot: new(false), RunAsUser: new(int64(0))}},
			want:     corev1.Container{SecurityContext: &corev1.SecurityContext{RunAsNonRoot: new(false), RunAsUser: new(int64(0))}},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			defaults, step := test.defaults.DeepCopy(), test.step.DeepCopy()
			got := mergeContainer(defaults, step)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("merged (-want, +got):\n%s", diff)
			}
			if !cmp.Equal(*defaults, test.defaults) || !cmp.Equal(*step, test.step) {
				t.Error("merging changed its arguments")
			}
		})
	}
}

// An operator that copies the template field by field omits annotations, the securityContext,
// pull secrets or init containers.
func TestEveryTemplateFieldIsKept(t *testing.T) {
	var template corev1.PodTemplateSpec
	setNonZero(reflect.ValueOf(&template).Elem())
	template.Spec.Containers[0].Name = "step"
	sj := testbuilder.SequentialJob("a", "ns").Step("build").Template(template).Obj()
	sj.Spec.Containers[0].Image = ""

	got := podTemplate(sj, &sj.Spec.Containers[0])

	for key, value := range template.Labels {
		if got.Labels[key] != value {
			t.Errorf("label %s: want %q, got %q", key, value, got.Labels[key])
		}
	}
	want := template.DeepCopy()
	want.Labels = got.Labels
	want.Spec.Containers[0].Name = "build"
	if diff := cmp.Diff(*want, got); diff != "" {
		t.Errorf("Pod template (-want, +got):\n%s", diff)
	}
}

func TestEveryContainerFieldIsKept(t *testing.T) {
	var container corev1.Container
	setNonZero(reflect.ValueOf(&container).Elem())
	sj := testbuilder.SequentialJob("a", "ns").Step("build", testbuilder.ChangeContainer(func(c *corev1.Container) { *c = container })).Obj()

	got := podTemplate(sj, &sj.Spec.Containers[0])

	container.Name = "build"
	if diff := cmp.Diff([]corev1.Container{container}, got.Spec.Containers); diff != "" {
		t.Errorf("containers (-want, +got):\n%s", diff)
	}
}

func TestRestartPolicyIsNeverUnlessTheTemplateSetsOnFailure(t *testing.T) {
	tests := map[string]struct {
		template corev1.RestartPolicy
		want     corev1.RestartPolicy
	}{
		"unset":     {want: corev1.RestartPolicyNever},
		"Never":     {template: corev1.RestartPolicyNever, want: corev1.RestartPolicyNever},
		"OnFailure": {template: corev1.RestartPolicyOnFailure, want: corev1.RestartPolicyOnFailure},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			template := corev1.PodTemplateSpec{Spec: corev1.PodSpec{RestartPolicy: test.template}}
			sj := testbuilder.SequentialJob("a", "ns").Step("build").Template(template).Obj()
			if got := podTemplate(sj, &sj.Spec.Containers[0]).Spec.RestartPolicy; got != test.want {
				t.Errorf("want %s, got %s", test.want, got)
			}
		})
	}
}

// setNonZero sets every exported field under v to a non-zero value.
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
