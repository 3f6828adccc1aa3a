package xds

import (
	"fmt"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"weir/envoy"
	"weir/fleet"
)

// maxName bounds the names that a client gives itself, in bytes.
const maxName = 256

// identity names an xDS client. An Envoy and its weir-extproc differ in the role
// alone.
type identity struct {
	frontEnd fleet.FrontEndID
	node     string
	role     fleet.Role
}

// identify reads a client's name, or says what its bootstrap lacks.
func identify(n *corev3.Node) (identity, error) {
	id := identity{fleet.FrontEndID(n.GetCluster()), n.GetId(), envoy.RoleOf(n)}
	switch {
	case id.node == "":
		return id, status.Error(codes.InvalidArgument, "the node has no id: set node.id in the bootstrap, unique within the front-end")
	case id.frontEnd == "":
		return id, status.Errorf(codes.InvalidArgument, "node %.64q has no cluster: set node.cluster in the bootstrap to the name of its front-end", id.node)
	case len(id.node) > maxName || len(id.frontEnd) > maxName:
		return id, status.Errorf(codes.InvalidArgument, "node %.64q: node.id and node.cluster may have %d bytes each", id.node, maxName)
	}
	return id, nil
}

// sibling is the other xDS client of the same node.
func (id identity) sibling() identity {
	if id.role == fleet.RoleExtProc {
		id.role = fleet.RoleEnvoy
	} else {
		id.role = fleet.RoleExtProc
	}
	return id
}

// slim is the node without the long list of extensions that an Envoy sends.
func (id identity) slim() *corev3.Node { return envoy.Node(id.frontEnd, id.node, id.role) }

// byIdentity keys the snapshot cache.
type byIdentity struct{}

// ID returns the key of a node's snapshot, unlike for unlike identities.
func (byIdentity) ID(n *corev3.Node) string {
	return identity{fleet.FrontEndID(n.GetCluster()), n.GetId(), envoy.RoleOf(n)}.key()
}

func (id identity) key() string { return fmt.Sprintf("%q %q %s", id.frontEnd, id.node, id.role) }

func (id identity) fields() []zap.Field {
	return []zap.Field{
		zap.String("frontEnd", string(id.frontEnd)), zap.String("node", id.node), zap.String("role", string(id.role)),
	}
}
