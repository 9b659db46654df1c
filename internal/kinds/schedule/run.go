package schedule

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/decision"
)

// ScheduledTimeVariable is the environment variable with the scheduled time of a run, in RFC 3339 and UTC.
const ScheduledTimeVariable = "SCHEDULED_TIME"

// minTTL is the shortest TTL of a finished run in seconds: the operator must observe that the run exists, also after a crash.
const minTTL = 60

// RunName returns the name of the run of a due time. It ends with the minutes since 1970, as the name of a CronJob's Job does.
func RunName(s *v1alpha1.Schedule, due time.Time) string {
	return fmt.Sprintf("%s-%d", s.Name, due.Unix()/60)
}

// KindOf returns the kind of a Schedule's runs. It says nothing about messages of a queue, which are no objects.
func KindOf(spec *v1alpha1.ScheduleSpec) string {
	if spec.AgenticSession != nil {
		return "AgenticSession"
	}
	return "SequentialJob"
}

// TemplateField returns the name of the field with the template of a Schedule's runs.
func TemplateField(spec *v1alpha1.ScheduleSpec) string {
	if spec.AgenticSession != nil {
		return "agenticSession"
	}
	return "sequentialJob"
}

// templateOf returns the template of a Schedule's runs and its path. A Schedule without a template is invalid.
func templateOf(spec *v1alpha1.ScheduleSpec) (*v1alpha1.ScheduleTemplate, *field.Path) {
	template := spec.SequentialJob
	if spec.AgenticSession != nil {
		template = spec.AgenticSession
	}
	if template == nil {
		template = &v1alpha1.ScheduleTemplate{}
	}
	return template, field.NewPath("spec", TemplateField(spec))
}

// NewRun returns the object of a run. It is not converted to the Go type of its kind, so that the API server reports unknown fields.
func NewRun(s *v1alpha1.Schedule, started *v1alpha1.ScheduledRun) (*unstructured.Unstructured, error) {
	template, path := templateOf(&s.Spec)
	spec := map[string]any{}
	if err := utiljson.Unmarshal(template.Spec.Raw, &spec); err != nil { // keeps whole numbers
		return nil, fmt.Errorf("%s must be an object: %w", path.Child("spec"), err)
	}
	due := formatTime(started.ScheduledTime.Time)
	setScheduledTime(spec, KindOf(&s.Spec), due)
	run := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	run.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(KindOf(&s.Spec)))
	run.SetNamespace(s.Namespace)
	run.SetName(started.Name)
	run.SetOwnerReferences(decision.ControllerReferences("Schedule", s))
	labels, annotations := map[string]string{}, map[string]string{}
	if template.Metadata != nil {
		maps.Copy(labels, template.Metadata.Labels)
		maps.Copy(annotations, template.Metadata.Annotations)
	}
	labels[v1alpha1.LabelSchedule] = s.Name
	labels[v1alpha1.LabelManagedBy] = v1alpha1.ManagedByValue
	annotations[v1alpha1.AnnotationScheduledTime] = due
	if started.RerunID != "" {
		annotations[v1alpha1.AnnotationRerunID] = started.RerunID
	}
	run.SetLabels(labels)
	run.SetAnnotations(annotations)
	return run, nil
}

// setScheduledTime adds the variable with the time of a run, unless the template has a variable of that name.
func setScheduledTime(spec map[string]any, kind, value string) {
	if kind == "AgenticSession" {
		variables, _ := spec["environmentVariables"].(map[string]any)
		if variables == nil {
			variables = map[string]any{}
			spec["environmentVariables"] = variables
		}
		if _, found := variables[ScheduledTimeVariable]; !found {
			variables[ScheduledTimeVariable] = value
		}
		return
	}
	parameters, _ := spec["parameters"].([]any)
	for _, parameter := range parameters {
		if object, isObject := parameter.(map[string]any); isObject && object["name"] == ScheduledTimeVariable {
			return
		}
	}
	spec["parameters"] = append(parameters, map[string]any{"name": ScheduledTimeVariable, "value": value})
}

// Validate returns the errors that the CustomResourceDefinition does not find. A dry run finds out whether runs are accepted.
func Validate(s *v1alpha1.Schedule) field.ErrorList {
	var errs field.ErrorList
	spec := field.NewPath("spec")
	if err := CheckExpressions(s.Spec.Schedule); err != nil {
		errs = append(errs, field.Invalid(spec.Child("schedule"), s.Spec.Schedule, err.Error()))
	}
	if _, err := LoadTimeZone(s.Spec.TimeZone); err != nil {
		errs = append(errs, field.Invalid(spec.Child("timeZone"), s.Spec.TimeZone, err.Error()))
	}
	if _, err := compileWhen(s.Spec.When); err != nil {
		errs = append(errs, field.Invalid(spec.Child("when"), s.Spec.When, err.Error()))
	}
	return append(errs, validateRuns(s)...)
}

// validateRuns returns the errors of the template or message.
func validateRuns(s *v1alpha1.Schedule) field.ErrorList {
	spec := field.NewPath("spec")
	if s.Spec.Message == nil {
		return validateTemplate(&s.Spec)
	}
	// The message of any time, regardless of the limits of its queue.
	err := NewMessage(s, "queue", "id", time.Time{}.Add(time.Hour)).Validate()
	if failure := (*broker.SendError)(nil); errors.As(err, &failure) && failure.Field != "" {
		return field.ErrorList{field.Invalid(spec.Child("message", failure.Field), field.OmitValueType{}, failure.Err.Error())}
	}
	if err != nil {
		return field.ErrorList{field.Invalid(spec.Child("message"), field.OmitValueType{}, err.Error())}
	}
	return nil
}

func validateTemplate(spec *v1alpha1.ScheduleSpec) field.ErrorList {
	template, path := templateOf(spec)
	var errs field.ErrorList
	if template.Metadata != nil {
		errs = append(errs, validateKeys(path.Child("metadata", "labels"), template.Metadata.Labels)...)
		errs = append(errs, validateKeys(path.Child("metadata", "annotations"), template.Metadata.Annotations)...)
	}
	run := struct {
		TTL *int64 `json:"ttlSecondsAfterFinished"`
	}{}
	if err := json.Unmarshal(template.Spec.Raw, &run); err != nil {
		return append(errs, field.Invalid(path.Child("spec"), field.OmitValueType{}, err.Error()))
	}
	if run.TTL != nil && *run.TTL < minTTL {
		errs = append(errs, field.Invalid(path.Child("spec", "ttlSecondsAfterFinished"), *run.TTL, fmt.Sprintf("must be at least %d in a Schedule, whose history limits define which finished runs are kept", minTTL)))
	}
	return errs
}

func validateKeys(path *field.Path, values map[string]string) field.ErrorList {
	var errs field.ErrorList
	for key := range values {
		if strings.HasPrefix(key, v1alpha1.Prefix) || key == v1alpha1.LabelManagedBy {
			errs = append(errs, field.Forbidden(path.Key(key), "is reserved"))
		}
	}
	return errs
}
