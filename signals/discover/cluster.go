package discover

import (
	"errors"
	"fmt"
	"net/url"
	"sync"

	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

// A control plane that begins with hundreds of pools asks twice for each. The API server
// has limits of its own; these keep a mistake of ours from it.
const (
	clusterQPS   = 50
	clusterBurst = 200
)

// cluster is the one client of an API server, which all pools share. It is made when the
// first of them asks for it.
type cluster struct {
	kubeconfig string // the file that names it; empty: as kubectl finds it, else the pod's own

	mu     sync.Mutex // guards client
	client rest.Interface
}

// slices gives access to the EndpointSlices of a Service.
func (c *cluster) slices(namespace, service string) (*cache.ListWatch, error) {
	client, err := c.connect()
	if err != nil {
		return nil, err
	}
	selector := labels.Set{discoveryv1.LabelServiceName: service}.String()
	return cache.NewFilteredListWatchFromClient(client, "endpointslices", namespace, func(o *metav1.ListOptions) {
		o.LabelSelector = selector
	}), nil
}

// connect returns the client. One that could not be made is tried again by the next who
// asks: its files may be there by then.
func (c *cluster) connect() (rest.Interface, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.client != nil {
		return c.client, nil
	}
	config, err := findCluster(c.kubeconfig)
	if err != nil {
		return nil, err
	}
	client, err := sliceClient(config)
	if err != nil {
		return nil, err
	}
	c.client = client
	return client, nil
}

// CheckKubeconfig says what is wrong with a file that names an API server; it does not
// ask that.
func CheckKubeconfig(file string) error {
	_, err := findCluster(file)
	return err
}

// findCluster finds the API server and who we are to it: by a file, else as kubectl does
// by $KUBECONFIG and ~/.kube/config, else as a pod does.
func findCluster(file string) (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = file
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		return nil, errors.New("no Kubernetes cluster is known: run the control plane in a pod, or say --kubeconfig FILE or KUBECONFIG=FILE")
	}
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	return config, nil
}

// sliceClient is one for EndpointSlices and nothing else: that of all kinds weighs more
// than the rest of the control plane.
func sliceClient(config *rest.Config) (rest.Interface, error) {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, discoveryv1.SchemeGroupVersion)
	if err := discoveryv1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	c := rest.CopyConfig(config)
	c.APIPath, c.GroupVersion = "/apis", &discoveryv1.SchemeGroupVersion
	c.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	c.QPS, c.Burst = clusterQPS, clusterBurst
	c.UserAgent = "weir"
	c.WarningHandler = rest.NoWarnings{}
	return rest.RESTClientFor(c)
}

// explainTrouble puts an error of the API server, or on the way to it, so that it reads
// the same while it lasts: addresses of requests hold times.
func explainTrouble(err error) error {
	if u := (*url.Error)(nil); errors.As(err, &u) {
		where := u.URL
		if parsed, bad := url.Parse(u.URL); bad == nil {
			where = parsed.Host
		}
		return fmt.Errorf("the API server %s: %w", where, u.Err)
	}
	if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
		return fmt.Errorf("%w; allow it to get, list and watch endpointslices", err)
	}
	return err
}
