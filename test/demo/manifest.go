package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/yardmaster/yardmaster/test/demo/page"
)

const namespaceTimeout = 2 * time.Minute

// readManifest reads a manifest in examples/.
func readManifest(file, namespace string) (*unstructured.Unstructured, error) {
	content, err := os.ReadFile(filepath.Join("examples", file))
	if err != nil {
		return nil, err
	}
	object := &unstructured.Unstructured{}
	if err := yaml.UnmarshalStrict(content, &object.Object); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	object.SetNamespace(namespace)
	return object, nil
}

// create creates an object, and refuses unknown fields.
func (s *demoEnvironment) create(ctx context.Context, object *unstructured.Unstructured) error {
	return s.client.Create(ctx, object, client.FieldValidation(metav1.FieldValidationStrict))
}

// checkRefusal returns an error unless the API server refused to create a manifest with this message.
func checkRefusal(section *page.Section, file, message string, err error) error {
	switch {
	case err == nil:
		return fmt.Errorf("%s was accepted, expected a refusal with: %s", file, message)
	case !strings.Contains(err.Error(), message):
		return fmt.Errorf("%s was refused, expected the message %q: %w", file, message, err)
	}
	section.Log("refused as expected: %v", err)
	return nil
}

// recreateNamespace creates a namespace and deletes an earlier one with the same name. It
// enforces the Pod Security Standard `restricted`, which the examples meet.
func (s *demoEnvironment) recreateNamespace(ctx context.Context, namespace string) error {
	fresh := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name:   namespace,
		Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"},
	}}
	old := fresh.DeepCopy()
	err := s.client.Delete(ctx, old)
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return err
	}
	err = wait.PollUntilContextTimeout(ctx, pollInterval, namespaceTimeout, true, func(ctx context.Context) (bool, error) {
		err := s.client.Get(ctx, client.ObjectKeyFromObject(fresh), &corev1.Namespace{})
		return apierrors.IsNotFound(err), nil
	})
	if err != nil {
		return fmt.Errorf("namespace %s was not deleted within %s: %w", namespace, namespaceTimeout, err)
	}
	return s.client.Create(ctx, fresh)
}
