# Roles and policies of mortise

variable "cluster_name" {
  description = "Name of the EKS cluster"
  type        = string
  default     = "demo"
}

data "aws_caller_identity" "current" {}

data "aws_partition" "current" {}

data "aws_region" "current" {}

resource "aws_iam_role" "node" {
  name = "KarpenterNodeRole-${var.cluster_name}"
  assume_role_policy = jsonencode({
    Statement = [
      {
        Action = "sts:AssumeRole"
        Effect = "Allow"
        Principal = {
          Service = "ec2.${data.aws_partition.current.dns_suffix}"
        }
      },
    ]
    Version = "2012-10-17"
  })
}

resource "aws_iam_role_policy_attachment" "node_AmazonEC2ContainerRegistryPullOnly" {
  role       = aws_iam_role.node.name
  policy_arn = "arn:${data.aws_partition.current.partition}:iam::aws:policy/AmazonEC2ContainerRegistryPullOnly"
}

resource "aws_iam_role_policy_attachment" "node_AmazonEKSWorkerNodePolicy" {
  role       = aws_iam_role.node.name
  policy_arn = "arn:${data.aws_partition.current.partition}:iam::aws:policy/AmazonEKSWorkerNodePolicy"
}

resource "aws_iam_role_policy_attachment" "node_AmazonEKS_CNI_Policy" {
  role       = aws_iam_role.node.name
  policy_arn = "arn:${data.aws_partition.current.partition}:iam::aws:policy/AmazonEKS_CNI_Policy"
}

resource "aws_iam_role_policy_attachment" "node_AmazonSSMManagedInstanceCore" {
  role       = aws_iam_role.node.name
  policy_arn = "arn:${data.aws_partition.current.partition}:iam::aws:policy/AmazonSSMManagedInstanceCore"
}

resource "aws_iam_role" "controller" {
  name = "MortiseController-${var.cluster_name}"
  assume_role_policy = jsonencode({
    Statement = [
      {
        Action = [
          "sts:AssumeRole",
          "sts:TagSession",
        ]
        Condition = {
          StringEquals = {
            "aws:RequestTag/eks-cluster-arn"            = "arn:${data.aws_partition.current.partition}:eks:${data.aws_region.current.id}:${data.aws_caller_identity.current.account_id}:cluster/${var.cluster_name}"
            "aws:RequestTag/kubernetes-namespace"       = "kube-system"
            "aws:RequestTag/kubernetes-service-account" = "mortise"
          }
        }
        Effect = "Allow"
        Principal = {
          Service = "pods.eks.amazonaws.com"
        }
      },
    ]
    Version = "2012-10-17"
  })
}

resource "aws_iam_policy" "node_lifecycle" {
  name = "MortiseNodeLifecycle-${var.cluster_name}"
  policy = jsonencode({
    Statement = [
      {
        Action = [
          "ec2:CreateFleet",
          "ec2:RunInstances",
        ]
        Effect = "Allow"
        Resource = [
          "arn:${data.aws_partition.current.partition}:ec2:${data.aws_region.current.id}:*:capacity-reservation/*",
          "arn:${data.aws_partition.current.partition}:ec2:${data.aws_region.current.id}::image/*",
          "arn:${data.aws_partition.current.partition}:ec2:${data.aws_region.current.id}:*:placement-group/*",
          "arn:${data.aws_partition.current.partition}:ec2:${data.aws_region.current.id}:*:security-group/*",
          "arn:${data.aws_partition.current.partition}:ec2:${data.aws_region.current.id}::snapshot/*",
          "arn:${data.aws_partition.current.partition}:ec2:${data.aws_region.current.id}:*:subnet/*",
        ]
        Sid = "LaunchWithExistingResources"
      },
      {
        Action = [
          "ec2:CreateFleet",
          "ec2:RunInstances",
        ]
        Condition = {
          StringEquals = {
            "aws:ResourceTag/kubernetes.io/cluster/${var.cluster_name}" = "owned"
          }
          StringLike = {
            "aws:ResourceTag/karpenter.sh/nodepool" = "*"
          }
        }
        Effect   = "Allow"
        Resource = "arn:${data.aws_partition.current.partition}:ec2:${data.aws_region.current.id}:*:launch-template/*"
        Sid      = "LaunchWithOwnTemplates"
      },
      {
        Action = [
          "ec2:CreateFleet",
          "ec2:RunInstances",
        ]
        Condition = {
          StringEquals = {
            "aws:RequestTag/eks:eks-cluster-name"                      = var.cluster_name
            "aws:RequestTag/kubernetes.io/cluster/${var.cluster_name}" = "owned"
          }
          StringLike = {
            "aws:RequestTag/karpenter.sh/nodepool" = "*"
          }
        }
        Effect = "Allow"
        Resource = [
          "arn:${data.aws_partition.current.partition}:ec2:${data.aws_region.current.id}:*:fleet/*",
          "arn:${data.aws_partition.current.partition}:ec2:${data.aws_region.current.id}:*:instance/*",
          "arn:${data.aws_partition.current.partition}:ec2:${data.aws_region.current.id}:*:network-interface/*",
          "arn:${data.aws_partition.current.partition}:ec2:${data.aws_region.current.id}:*:spot-instances-request/*",
          "arn:${data.aws_partition.current.partition}:ec2:${data.aws_region.current.id}:*:volume/*",
        ]
        Sid = "LaunchWithOwnTags"
      },
      {
        Action = "ec2:CreateLaunchTemplate"
        Condition = {
          StringEquals = {
            "aws:RequestTag/eks:eks-cluster-name"                      = var.cluster_name
            "aws:RequestTag/kubernetes.io/cluster/${var.cluster_name}" = "owned"
          }
          StringLike = {
            "aws:RequestTag/karpenter.sh/nodepool" = "*"
          }
        }
        Effect   = "Allow"
        Resource = "arn:${data.aws_partition.current.partition}:ec2:${data.aws_region.current.id}:*:launch-template/*"
        Sid      = "CreateOwnTemplates"
      },
      {
        Action = "ec2:CreateTags"
        Condition = {
          StringEquals = {
            "aws:RequestTag/eks:eks-cluster-name"                      = var.cluster_name
            "aws:RequestTag/kubernetes.io/cluster/${var.cluster_name}" = "owned"
            "ec2:CreateAction" = [
              "CreateFleet",
              "CreateLaunchTemplate",
              "RunInstances",
            ]
          }
          StringLike = {
            "aws:RequestTag/karpenter.sh/nodepool" = "*"
          }
        }
        Effect = "Allow"
        Resource = [
          "arn:${data.aws_partition.current.partition}:ec2:${data.aws_region.current.id}:*:fleet/*",
          "arn:${data.aws_partition.current.partition}:ec2:${data.aws_region.current.id}:*:instance/*",
          "arn:${data.aws_partition.current.partition}:ec2:${data.aws_region.current.id}:*:network-interface/*",
          "arn:${data.aws_partition.current.partition}:ec2:${data.aws_region.current.id}:*:spot-instances-request/*",
          "arn:${data.aws_partition.current.partition}:ec2:${data.aws_region.current.id}:*:volume/*",
          "arn:${data.aws_partition.current.partition}:ec2:${data.aws_region.current.id}:*:launch-template/*",
        ]
        Sid = "TagAtCreation"
      },
      {
        Action = "ec2:CreateTags"
        Condition = {
          "ForAllValues:StringEquals" = {
            "aws:TagKeys" = [
              "Name",
              "eks:eks-cluster-name",
              "karpenter.sh/nodeclaim",
              "mortise.sh/nodeclaim-uid",
            ]
          }
          StringEquals = {
            "aws:ResourceTag/kubernetes.io/cluster/${var.cluster_name}" = "owned"
          }
          StringEqualsIfExists = {
            "aws:RequestTag/eks:eks-cluster-name" = var.cluster_name
          }
          StringLike = {
            "aws:ResourceTag/karpenter.sh/nodepool" = "*"
          }
        }
        Effect   = "Allow"
        Resource = "arn:${data.aws_partition.current.partition}:ec2:${data.aws_region.current.id}:*:instance/*"
        Sid      = "TagOwnInstances"
      },
      {
        Action = [
          "ec2:DeleteLaunchTemplate",
          "ec2:TerminateInstances",
        ]
        Condition = {
          StringEquals = {
            "aws:ResourceTag/kubernetes.io/cluster/${var.cluster_name}" = "owned"
          }
          StringLike = {
            "aws:ResourceTag/karpenter.sh/nodepool" = "*"
          }
        }
        Effect = "Allow"
        Resource = [
          "arn:${data.aws_partition.current.partition}:ec2:${data.aws_region.current.id}:*:instance/*",
          "arn:${data.aws_partition.current.partition}:ec2:${data.aws_region.current.id}:*:launch-template/*",
        ]
        Sid = "DeleteOwn"
      },
    ]
    Version = "2012-10-17"
  })
}

resource "aws_iam_role_policy_attachment" "node_lifecycle" {
  role       = aws_iam_role.controller.name
  policy_arn = aws_iam_policy.node_lifecycle.arn
}

resource "aws_iam_policy" "instance_profiles" {
  name = "MortiseInstanceProfiles-${var.cluster_name}"
  policy = jsonencode({
    Statement = [
      {
        Action = "iam:PassRole"
        Condition = {
          StringEquals = {
            "iam:PassedToService" = [
              "ec2.amazonaws.com",
              "ec2.amazonaws.com.cn",
            ]
          }
        }
        Effect   = "Allow"
        Resource = "arn:${data.aws_partition.current.partition}:iam::${data.aws_caller_identity.current.account_id}:role/KarpenterNodeRole-${var.cluster_name}"
        Sid      = "PassNodeRole"
      },
      {
        Action = "iam:CreateInstanceProfile"
        Condition = {
          StringEquals = {
            "aws:RequestTag/eks:eks-cluster-name"                      = var.cluster_name
            "aws:RequestTag/kubernetes.io/cluster/${var.cluster_name}" = "owned"
            "aws:RequestTag/topology.kubernetes.io/region"             = data.aws_region.current.id
          }
          StringLike = {
            "aws:RequestTag/karpenter.k8s.aws/ec2nodeclass" = "*"
          }
        }
        Effect   = "Allow"
        Resource = "arn:${data.aws_partition.current.partition}:iam::${data.aws_caller_identity.current.account_id}:instance-profile/*"
        Sid      = "CreateOwnProfiles"
      },
      {
        Action = "iam:TagInstanceProfile"
        Condition = {
          StringEquals = {
            "aws:RequestTag/eks:eks-cluster-name"                       = var.cluster_name
            "aws:RequestTag/kubernetes.io/cluster/${var.cluster_name}"  = "owned"
            "aws:RequestTag/topology.kubernetes.io/region"              = data.aws_region.current.id
            "aws:ResourceTag/kubernetes.io/cluster/${var.cluster_name}" = "owned"
            "aws:ResourceTag/topology.kubernetes.io/region"             = data.aws_region.current.id
          }
          StringLike = {
            "aws:RequestTag/karpenter.k8s.aws/ec2nodeclass"  = "*"
            "aws:ResourceTag/karpenter.k8s.aws/ec2nodeclass" = "*"
          }
        }
        Effect   = "Allow"
        Resource = "arn:${data.aws_partition.current.partition}:iam::${data.aws_caller_identity.current.account_id}:instance-profile/*"
        Sid      = "RetagOwnProfiles"
      },
      {
        Action = [
          "iam:AddRoleToInstanceProfile",
          "iam:DeleteInstanceProfile",
          "iam:RemoveRoleFromInstanceProfile",
        ]
        Condition = {
          StringEquals = {
            "aws:ResourceTag/kubernetes.io/cluster/${var.cluster_name}" = "owned"
            "aws:ResourceTag/topology.kubernetes.io/region"             = data.aws_region.current.id
          }
          StringLike = {
            "aws:ResourceTag/karpenter.k8s.aws/ec2nodeclass" = "*"
          }
        }
        Effect   = "Allow"
        Resource = "arn:${data.aws_partition.current.partition}:iam::${data.aws_caller_identity.current.account_id}:instance-profile/*"
        Sid      = "ChangeOwnProfiles"
      },
      {
        Action   = "iam:GetInstanceProfile"
        Effect   = "Allow"
        Resource = "arn:${data.aws_partition.current.partition}:iam::${data.aws_caller_identity.current.account_id}:instance-profile/*"
        Sid      = "ReadProfiles"
      },
      {
        Action   = "iam:ListInstanceProfiles"
        Effect   = "Allow"
        Resource = "*"
        Sid      = "ListProfiles"
      },
    ]
    Version = "2012-10-17"
  })
}

resource "aws_iam_role_policy_attachment" "instance_profiles" {
  role       = aws_iam_role.controller.name
  policy_arn = aws_iam_policy.instance_profiles.arn
}

resource "aws_iam_policy" "cluster" {
  name = "MortiseCluster-${var.cluster_name}"
  policy = jsonencode({
    Statement = [
      {
        Action   = "eks:DescribeCluster"
        Effect   = "Allow"
        Resource = "arn:${data.aws_partition.current.partition}:eks:${data.aws_region.current.id}:${data.aws_caller_identity.current.account_id}:cluster/${var.cluster_name}"
        Sid      = "ReadCluster"
      },
    ]
    Version = "2012-10-17"
  })
}

resource "aws_iam_role_policy_attachment" "cluster" {
  role       = aws_iam_role.controller.name
  policy_arn = aws_iam_policy.cluster.arn
}

resource "aws_iam_policy" "interruption" {
  name = "MortiseInterruption-${var.cluster_name}"
  policy = jsonencode({
    Statement = [
      {
        Action = [
          "sqs:DeleteMessage",
          "sqs:GetQueueUrl",
          "sqs:ReceiveMessage",
        ]
        Effect   = "Allow"
        Resource = "arn:${data.aws_partition.current.partition}:sqs:${data.aws_region.current.id}:${data.aws_caller_identity.current.account_id}:${var.cluster_name}"
        Sid      = "ReadInterruptionQueue"
      },
    ]
    Version = "2012-10-17"
  })
}

resource "aws_iam_role_policy_attachment" "interruption" {
  role       = aws_iam_role.controller.name
  policy_arn = aws_iam_policy.interruption.arn
}

resource "aws_iam_policy" "zonal_shift" {
  name = "MortiseZonalShift-${var.cluster_name}"
  policy = jsonencode({
    Statement = [
      {
        Action   = "arc-zonal-shift:GetManagedResource"
        Effect   = "Allow"
        Resource = "*"
        Sid      = "ReadZonalShifts"
      },
    ]
    Version = "2012-10-17"
  })
}

resource "aws_iam_role_policy_attachment" "zonal_shift" {
  role       = aws_iam_role.controller.name
  policy_arn = aws_iam_policy.zonal_shift.arn
}

resource "aws_iam_policy" "resource_discovery" {
  name = "MortiseResourceDiscovery-${var.cluster_name}"
  policy = jsonencode({
    Statement = [
      {
        Action = [
          "ec2:DescribeCapacityReservations",
          "ec2:DescribeImages",
          "ec2:DescribeInstanceStatus",
          "ec2:DescribeInstanceTypeOfferings",
          "ec2:DescribeInstanceTypes",
          "ec2:DescribeInstances",
          "ec2:DescribeLaunchTemplates",
          "ec2:DescribePlacementGroups",
          "ec2:DescribeSecurityGroups",
          "ec2:DescribeSpotPriceHistory",
          "ec2:DescribeSubnets",
        ]
        Condition = {
          StringEquals = {
            "aws:RequestedRegion" = data.aws_region.current.id
          }
        }
        Effect   = "Allow"
        Resource = "*"
        Sid      = "ReadRegion"
      },
      {
        Action   = "ssm:GetParameter"
        Effect   = "Allow"
        Resource = "arn:${data.aws_partition.current.partition}:ssm:${data.aws_region.current.id}::parameter/aws/service/*"
        Sid      = "ReadImageParameters"
      },
      {
        Action   = "pricing:GetProducts"
        Effect   = "Allow"
        Resource = "*"
        Sid      = "ReadPrices"
      },
    ]
    Version = "2012-10-17"
  })
}

resource "aws_iam_role_policy_attachment" "resource_discovery" {
  role       = aws_iam_role.controller.name
  policy_arn = aws_iam_policy.resource_discovery.arn
}

resource "aws_eks_pod_identity_association" "controller" {
  cluster_name    = var.cluster_name
  namespace       = "kube-system"
  service_account = "mortise"
  role_arn        = aws_iam_role.controller.arn
}

output "controller_role_arn" {
  value = aws_iam_role.controller.arn
}

output "node_role_arn" {
  value = aws_iam_role.node.arn
}

output "node_role_name" {
  value = aws_iam_role.node.name
}
