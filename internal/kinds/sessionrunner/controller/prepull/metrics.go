package prepull

import "github.com/yardmaster/yardmaster/internal/kube/metric"

var refusedTotal = metric.NewCounter("yardmaster_session_prepull_refused_total",
	"Number of times that a DaemonSet that pulls the images of sessions could not be created or changed.")
