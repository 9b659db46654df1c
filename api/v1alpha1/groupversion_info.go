package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the API group and version of every kind in this package.
var GroupVersion = schema.GroupVersion{Group: "yardmaster.dev", Version: "v1alpha1"}

var schemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)

// SchemeGroupVersion is GroupVersion, under the name that generated clients use.
var SchemeGroupVersion = GroupVersion

// AddToScheme registers this package's kinds with a scheme.
var AddToScheme = schemeBuilder.AddToScheme

func addKnownTypes(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion,
		&SequentialJob{}, &SequentialJobList{},
		&JobReport{}, &JobReportList{},
		&Queue{}, &QueueList{},
		&WorkerPool{}, &WorkerPoolList{},
		&Policy{}, &PolicyList{},
		&SessionRunner{}, &SessionRunnerList{},
		&AgenticSession{}, &AgenticSessionList{},
		&Schedule{}, &ScheduleList{},
	)
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
