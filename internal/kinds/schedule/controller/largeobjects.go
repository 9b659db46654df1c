package controller

import (
	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kube"
)

// TrimSchedule is a cache transform. A trimmed Schedule keeps the reference to its Queue, by which Schedules are found.
var TrimSchedule = kube.TrimLarge(func(s *v1alpha1.Schedule) {
	for _, template := range []*v1alpha1.ScheduleTemplate{s.Spec.SequentialJob, s.Spec.AgenticSession} {
		if template != nil {
			*template = v1alpha1.ScheduleTemplate{}
		}
	}
	if message := s.Spec.Message; message != nil {
		*message = v1alpha1.ScheduledMessage{QueueRef: message.QueueRef}
	}
})
