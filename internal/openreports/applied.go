package openreports

import (
	"fmt"

	openreportsv1alpha1 "github.com/openreports/reports-api/apis/openreports.io/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// ApplyConfiguration is a Report as it is applied: without the fields that it says nothing of. Its
// Go type cannot leave them out, and a result of unknown time would claim to be of 1970.
func ApplyConfiguration(report *openreportsv1alpha1.Report) (*unstructured.Unstructured, error) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(report)
	if err != nil {
		return nil, fmt.Errorf("encoding the Report: %w", err)
	}
	unstructured.RemoveNestedField(fields, "metadata", "creationTimestamp")
	results, _ := fields["results"].([]any) // none: there is no such field
	for i, result := range results {
		if result, isObject := result.(map[string]any); isObject {
			removeUnsetFields(result, &report.Results[i])
		}
	}
	return &unstructured.Unstructured{Object: fields}, nil
}

func removeUnsetFields(fields map[string]any, result *openreportsv1alpha1.ReportResult) {
	if result.Source == "" {
		delete(fields, "source")
	}
	if result.Timestamp == (metav1.Timestamp{}) {
		delete(fields, "timestamp")
	}
}
